"""Polls a prefix, and starts a run for each new object.

Each round lists the whole prefix, compares it with the objects seen, and starts runs for new ones, oldest first. The
seen objects are saved after the starts. Errors of other services lose no objects, because the next round finds them
again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

from treadle.dsl.triggers import ObjectTrigger, Poll
from treadle.primitives.errors import TreadleError, UsageError
from treadle.primitives.events import Event
from treadle.primitives.events.decode import event_time
from treadle.primitives.stores.store import ObjectInfo, Store

from ..event_mapping import Rules
from ..polling import PollingRunner
from ..run_ids import event_run
from ..run_limit import Full, RunLimit
from ..start_requests import StartOrder
from ..trigger_runner import State, TriggerSite, TriggerStatus
from .listing_diff import HandledObjects, check_utf8, event_of, first_look
from .seen_objects import ObjectRecords, RefusedObject, born

_log = logging.getLogger("treadle.triggers")
SAVE_EVERY = 500
"""Number of starts between two saves of the seen objects."""
AT_ONCE = 20
"""Maximum starts in progress; one with `maxActive`, which also guarantees the order."""
WAIT = 5.0
"""Seconds that a start waits for room when `maxActive` runs are open, before the next try."""


class Poller(PollingRunner):
    """The runner of an object trigger with `poll`."""

    def __init__(self, site: TriggerSite, workflow: str, trigger: str) -> None:
        super().__init__(site, workflow, trigger)
        self._records = ObjectRecords(site.store, site.key, workflow, trigger)
        self._gate = RunLimit(site.starter, workflow, trigger)
        self._looking = ThreadPoolExecutor(1)
        """Lists and decides. A store may take minutes to answer, and the default pool is needed for the starts of all
        triggers."""
        self._seen: HandledObjects | None = None
        self._born = 0
        self._started = self._dead = 0
        self._lag: int | None = None

    async def stop(self) -> None:
        await super().stop()
        self._looking.shutdown(wait=False)
        await self._gate.close()
        await self._save()

    def status(self) -> TriggerStatus:
        return self._status(self._started, self._dead, self._gate.active, self._lag)

    @property
    def every(self) -> float:
        return self._poll.every

    @property
    def _poll(self) -> Poll:
        trigger = self._deployment.spec.triggers[self._name]
        assert isinstance(trigger, ObjectTrigger)
        assert trigger.poll is not None
        return trigger.poll

    # -- polling

    async def look(self) -> State:
        """See PollingRunner. Objects started before an error remain recorded."""
        if self._paused:
            return "paused"
        rules, uri = Rules(self._deployment, self._name), self._poll.uri
        listing = await asyncio.get_running_loop().run_in_executor(self._looking, _listing, uri)
        seen = await self._known(rules, listing)
        fresh = seen.fresh(listing)
        self._lag = len(fresh)
        try:
            await self._start_all(rules, uri, fresh, seen)
        except Full:
            pass  # another version or a pause arrived while waiting for room
        finally:
            await self._save()
        return "running"

    async def _known(self, rules: Rules, listing: list[ObjectInfo]) -> HandledObjects:
        """The seen objects, of this process or stored earlier; in the first round, the objects that count as seen."""
        assert isinstance(rules.trigger, ObjectTrigger)
        self._gate.limit = rules.trigger.max_active
        history = await asyncio.to_thread(self._site.registry.history, self._workflow)
        until_now = [one for one in history if one.version <= rules.version]  # a newer one may poll another prefix
        since = born(until_now, self._name)
        if self._seen is None or self._born != since.version:
            known = await asyncio.to_thread(self._records.load, since.version)
            cut = since.time if rules.trigger.start_from == "latest" else None
            self._seen = first_look(listing, cut) if known is None else known  # which may be empty
            self._born = since.version
        return self._seen

    async def _start_all(self, rules: Rules, uri: str, fresh: list[ObjectInfo], seen: HandledObjects) -> None:
        at_once = AT_ONCE if self._gate.limit is None else 1
        for begin in range(0, len(fresh), at_once):
            if self._changed.is_set():
                return  # a new version or pause decides on the rest, which is still new in the next round
            some = fresh[begin : begin + at_once]
            work = (self._handle(rules, uri, found, seen) for found in some)
            done = await asyncio.gather(*work, return_exceptions=True)
            if failed := next((one for one in done if one is not None), None):
                raise failed
            if begin // SAVE_EVERY != (begin + at_once) // SAVE_EVERY:
                await self._save()

    async def _handle(self, rules: Rules, uri: str, found: ObjectInfo, seen: HandledObjects) -> None:
        """Return once the object has a run, is filtered out, or is refused on record. Raises Unreachable and Full."""
        event = event_of(uri, found)
        run = event_run(self._workflow, self._name, event)
        try:
            check_utf8(found)
            when = event_time(event)
            order = await asyncio.get_running_loop().run_in_executor(self._looking, _order, rules, run, event, when)
            if order is not None:
                await self._start(order)
        except UsageError as error:
            _log.warning("%s.%s: object %s: %s", self._workflow, self._name, event.subject, error.message)
            refused = RefusedObject(event, error.message, run, rules.version, time.time())
            await asyncio.to_thread(self._records.refuse, refused)
            self._dead += 1
        seen.handled(found)
        self._lag = (self._lag or 1) - 1  # now, so that `status` counts no object as started and as waiting

    async def _start(self, order: StartOrder) -> None:
        while True:
            try:
                async with self._gate.entering() as enter:
                    started = await self._site.starter.start(order)
                    enter(started)
                self._started += started.new
                return
            except Full:
                if self._changed.is_set():
                    raise
                await self._gate.room(WAIT)

    async def _save(self) -> None:
        if self._seen is not None and self._seen.changed:
            try:
                await asyncio.to_thread(self._records.save, self._born, self._seen)
            except TreadleError as error:
                _log.warning("%s.%s: what was seen is not saved: %s", self._workflow, self._name, error)


def _order(rules: Rules, run: str, event: Event, when: datetime) -> StartOrder | None:
    """None: the event is filtered out. Raises Unfit, EvaluatorLost."""
    return rules.order(run, event, when) if rules.matches(event, when) else None


def _listing(uri: str) -> list[ObjectInfo]:
    return list(Store.open(uri).list())
