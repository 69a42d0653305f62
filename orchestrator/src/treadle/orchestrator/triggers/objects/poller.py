"""Looks at a prefix again and again, and starts a run for each object that is new.

Each look lists the prefix to its end, compares with what was seen, and starts what is new, oldest first; what was seen
is saved after the starts. Nobody who does not answer makes it lose anything: it looks again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time

from treadle.dsl.triggers import ObjectTrigger, Poll
from treadle.primitives.errors import TreadleError, UsageError
from treadle.primitives.store import ObjectInfo, Store

from ..events import Event, event_time
from ..gate import Full, Gate
from ..identity import event_run
from ..mapping import Rules
from ..registry.deployment import Deployment
from ..running import State, TriggerSite, TriggerStatus
from ..starting import StartOrder
from .looking import Seen, event_of, first_look
from .records import ObjectRecords, Refused, born, poll_of

_log = logging.getLogger("treadle.triggers")
SAVE_EVERY = 500
"""Starts between two savings of what was seen."""
AT_ONCE = 20
"""Starts under way at a time; one with `maxActive`, which is about order too."""
WAIT = 5.0
"""Seconds until a start is tried again, when nobody answers or `maxActive` runs are open."""


class Poller:
    """TriggerRunner of an object trigger with `poll`."""

    def __init__(self, site: TriggerSite, workflow: str, trigger: str) -> None:
        self._site, self._workflow, self._name = site, workflow, trigger
        self._records = ObjectRecords(site.store, site.key, workflow, trigger)
        self._gate = Gate(site.starter, workflow, trigger)
        self._deployment: Deployment | None = None
        self._paused = False
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._seen: Seen | None = None
        self._born = 0
        self._state: State = "starting"
        self._started = self._dead = 0
        self._lag: int | None = None
        self._error = ""

    # -- TriggerRunner

    async def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def update(self, deployment: Deployment, paused: bool) -> None:
        if (deployment, paused) != (self._deployment, self._paused):
            self._deployment, self._paused = deployment, paused
            self._changed.set()

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        await self._gate.close()
        await self._save()
        self._state = "stopped"

    def status(self) -> TriggerStatus:
        return TriggerStatus(
            self._workflow,
            self._name,
            "object",
            self._deployment.version if self._deployment else 0,
            self._state,
            self._started,
            self._dead,
            self._gate.active,
            self._lag,
            self._error,
            time.time(),
        )

    # -- looking

    async def _run(self) -> None:
        while True:
            assert self._deployment is not None
            self._changed.clear()
            every: float | None = None
            if self._paused:
                self._state = "paused"
            elif poll := poll_of(self._deployment, self._name):
                every = await self._look_once(poll)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), every)

    async def _look_once(self, poll: Poll) -> float:
        """Seconds until the next look."""
        try:
            await self._look(poll)
            self._state, self._error = "running", ""
        except TreadleError as error:
            self._state, self._error = "waiting", str(error)
            _log.warning("%s.%s: %s", self._workflow, self._name, error)
            return min(poll.every, WAIT)
        except Exception as defect:  # noqa: BLE001  # one trigger's defect ends neither it nor the others
            self._state, self._error = "failed", f"{type(defect).__name__}: {defect}"
            _log.exception("trigger %s.%s", self._workflow, self._name)
        return poll.every

    async def _look(self, poll: Poll) -> None:
        """Raises TreadleError; what was started until then is not forgotten."""
        assert self._deployment is not None
        deployment = self._deployment
        listing = await asyncio.to_thread(_listing, poll.uri)
        seen = await self._known(deployment, listing)
        fresh = seen.fresh(listing)
        self._lag = len(fresh)
        try:
            await self._start_all(deployment, poll.uri, fresh, seen)
        except Full:
            return  # the same, while it waited for room
        finally:
            await self._save()

    async def _known(self, deployment: Deployment, listing: list[ObjectInfo]) -> Seen:
        """What was seen, by this process or before; at the very first look, what counts as seen."""
        history = await asyncio.to_thread(self._site.registry.history, self._workflow)
        since = born(history, self._name)
        if self._seen is None or self._born != since.version:
            trigger = deployment.spec.triggers[self._name]
            assert isinstance(trigger, ObjectTrigger)
            known = await asyncio.to_thread(self._records.load, since.version)
            cut = since.time if trigger.start_from == "latest" else None
            self._seen, self._born = known or first_look(listing, cut), since.version
        return self._seen

    async def _start_all(self, deployment: Deployment, uri: str, fresh: list[ObjectInfo], seen: Seen) -> None:
        trigger = deployment.spec.triggers[self._name]
        assert isinstance(trigger, ObjectTrigger)
        self._gate.limit = trigger.max_active
        rules = Rules(self._name, trigger)
        at_once = AT_ONCE if trigger.max_active is None else 1
        for begin in range(0, len(fresh), at_once):
            if self._changed.is_set():
                return  # another version or a pause decides about the rest, which is new at the next look, too
            some = fresh[begin : begin + at_once]
            work = (self._handle(deployment, rules, event_of(uri, found)) for found in some)
            done = await asyncio.gather(*work, return_exceptions=True)
            for found, outcome in zip(some, done, strict=True):
                if outcome is None:
                    seen.handled(found)
                    self._lag = (self._lag or 1) - 1
            if failed := next((one for one in done if one is not None), None):
                raise failed
            if begin // SAVE_EVERY != (begin + at_once) // SAVE_EVERY:
                await self._save()

    async def _handle(self, deployment: Deployment, rules: Rules, event: Event) -> None:
        """Raises Unreachable and Full; returns once the object has a run, is passed over, or is refused on record."""
        run = event_run(self._workflow, self._name, event)
        try:
            when = event_time(event)
            if rules.matches(event, when):
                inputs = rules.inputs(event, when)
                await self._start(StartOrder(run, self._workflow, deployment.version, self._name, inputs))
        except UsageError as error:
            _log.warning("%s.%s: object %s: %s", self._workflow, self._name, event.subject, error.message)
            refused = Refused(event, error.message, run, deployment.version, time.time())
            await asyncio.to_thread(self._records.refuse, refused)
            self._dead += 1

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


def _listing(uri: str) -> list[ObjectInfo]:
    return list(Store.open(uri).list())
