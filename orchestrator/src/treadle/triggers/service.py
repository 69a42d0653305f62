"""`treadle triggers`: runs every deployed trigger of a store until it is stopped.

Triggers are independent: each has its runner, and a waiting trigger delays no other. The registry is read every few
seconds, to detect triggers that are deployed, changed, paused or removed.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import logging
import math
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from msgspec.structs import replace

from treadle.dsl.triggers import ObjectTrigger, Trigger
from treadle.orchestrator.embedded.detached_process import try_lock
from treadle.orchestrator.environment.home import Home
from treadle.primitives.asyncio_tasks import spawn
from treadle.primitives.errors import TreadleError

from .kafka.reader_settings import reading_of
from .registry.deployment import Deployment
from .status_store import StatusStore, statuses_of, write_statuses
from .trigger_runner import TriggerRunner, TriggerSite, TriggerStatus

_log = logging.getLogger("treadle.triggers")
LOOK_EVERY = 2.0
"""Seconds between two reads of the registry."""
TELL_EVERY = 5.0
"""Seconds between two reports."""
COUNT_EVERY = 5.0
"""Seconds between two counts of open runs, for triggers that do not count them themselves."""
KINDS = {
    "kafka": "treadle.triggers.kafka.runner:KafkaRunner",
    "poll": "treadle.triggers.objects.poller:Poller",
    "schedule": "treadle.triggers.schedules.runner:ScheduleRunner",
    "webhook": "treadle.triggers.webhook.runner:WebhookRunner",
}
"""Kind of event source -> the runner's class, which is called with (site, workflow, trigger)."""


@contextmanager
def instance(home: Home) -> Iterator[str]:
    """A name for this process: the first that no other process of this home and host uses."""
    folder = home.path / "triggers"
    folder.mkdir(mode=0o700, exist_ok=True)
    for number in range(1000):
        lock = try_lock(folder / f"{number}.lock")
        if lock is not None:
            break
    assert lock is not None
    place = hashlib.sha256(os.fsencode(home.path.resolve())).hexdigest()[:8]
    try:
        yield f"{socket.gethostname()}-{place}-{number}"
    finally:
        os.close(lock)


class TriggerService:
    """All triggers of a site. When cancelled, `run` shuts down in order."""

    def __init__(self, site: TriggerSite) -> None:
        self._site = site
        self._runners: dict[tuple[str, str, str], TriggerRunner] = {}
        self._broken: dict[tuple[str, str, str], TriggerStatus] = {}
        self._told = -math.inf
        self._memory = StatusStore()
        self._open: dict[tuple[str, str], int] = {}
        """Open runs at the last count; a trigger is missing if they are unknown."""
        self._since: dict[tuple[str, str], tuple[str, float]] = {}
        """Current errors, and the time of their first occurrence."""
        self._telling, self._over = threading.Lock(), False
        """A report in progress at the end of the service must not overwrite the final one."""

    async def run(self) -> None:
        """Raises only CancelledError: `status` reports failures, which are retried."""
        counting = spawn(self._count())
        try:
            for one in await asyncio.to_thread(self._before):
                self._memory.add(one)
            while True:
                try:
                    await self._reconcile()
                    self._watch()
                    await self._tell()
                except TreadleError as error:
                    _log.warning("%s", error)
                except Exception:  # noqa: BLE001  # an error here would end every trigger
                    _log.exception("triggers were not looked at")
                await asyncio.sleep(LOOK_EVERY)
        finally:
            counting.cancel()
            await self._stop(list(self._runners))
            self._broken.clear()
            with suppress(TreadleError):
                await asyncio.to_thread(self._take_back)

    def statuses(self) -> list[TriggerStatus]:
        """The status of every deployed trigger, by name."""
        found = {key: runner.status() for key, runner in self._runners.items()} | self._broken
        return sorted((self._full(one) for one in found.values()), key=lambda one: (one.workflow, one.trigger))

    def _full(self, status: TriggerStatus) -> TriggerStatus:
        """The status with the counts that its runner does not know."""
        key = status.workflow, status.trigger
        active = self._open.get(key) if status.active is None else status.active
        return replace(self._memory.total(status), active=active, since=self._since.get(key, ("", 0.0))[1])

    def _watch(self) -> None:
        """Log each new error of a trigger, and each recovery, once."""
        for key, runner in self._runners.items():
            name, error = key[:2], runner.status().error
            before, since = self._since.get(name, ("", time.time()))
            if error and error != before:
                _log.warning("%s.%s: %s", *name, error)
                self._since[name] = error, since
            elif before and not error:
                _log.warning("%s.%s: works again", *name)
                del self._since[name]

    async def _count(self) -> None:
        while True:
            names = [key[:2] for key in self._runners]
            asked = [self._site.starter.active(*name) for name in names]
            for name, found in zip(names, await asyncio.gather(*asked, return_exceptions=True), strict=True):
                if isinstance(found, BaseException):
                    self._open.pop(name, None)
                else:
                    self._open[name] = found
            await asyncio.sleep(COUNT_EVERY)

    def _before(self) -> list[TriggerStatus]:
        try:
            return statuses_of(self._site.store, self._site.key, self._site.instance)
        except TreadleError as error:
            _log.warning("what the triggers counted before is lost: %s", error)
            return []

    async def _reconcile(self) -> None:
        deployments, paused, aside = await asyncio.to_thread(self._look)
        wanted = {
            (one.workflow, name, kind_of(trigger)): one
            for one in deployments
            for name, trigger in one.spec.triggers.items()
            if (one.workflow, name) not in aside
        }
        if gone := [key for key in self._runners if key not in wanted]:
            await self._stop(gone)
        if gone or wanted.keys() - self._runners.keys() - self._broken.keys():
            self._told = -math.inf  # so that `trigger list` need not wait for the next report
        self._broken = {key: status for key, status in self._broken.items() if key in wanted}
        await asyncio.gather(
            *(self._ensure(key, one, key[1] in paused.get(one.workflow, ())) for key, one in wanted.items())
        )

    def _look(self) -> tuple[list[Deployment], dict[str, set[str]], set[tuple[str, str]]]:
        """The deployed, paused and set-aside triggers."""
        registry = self._site.registry
        deployments = registry.deployments()
        return deployments, {one.workflow: set(registry.paused(one.workflow)) for one in deployments}, registry.aside()

    async def _ensure(self, key: tuple[str, str, str], deployment: Deployment, paused: bool) -> None:
        """Ensure a runner that has the newest version."""
        workflow, trigger, kind = key
        try:
            runner = self._runners.get(key)
            if runner is None:
                runner = _make(kind, self._site, workflow, trigger)
                await runner.update(deployment, paused)
                await runner.start()
                self._runners[key] = runner
            else:
                await runner.update(deployment, paused)
            self._broken.pop(key, None)
        except Exception as error:  # noqa: BLE001  # a defect of one trigger must not end the service
            text = str(error) if isinstance(error, TreadleError) else f"{type(error).__name__}: {error}"
            if key not in self._broken:
                _log.warning("%s.%s: %s", workflow, trigger, text, exc_info=not isinstance(error, TreadleError))
            about = (workflow, trigger, deployment.spec.triggers[trigger].type, deployment.version)
            self._broken[key] = TriggerStatus(*about, "failed", error=text, time=time.time())

    async def _stop(self, keys: list[tuple[str, str, str]]) -> None:
        """Stop runners. They are reported until they have ended."""
        for outcome in await asyncio.gather(*(self._runners[key].stop() for key in keys), return_exceptions=True):
            if isinstance(outcome, Exception):
                _log.warning("a trigger does not end in order: %s", outcome)
        for key in keys:
            self._memory.add(self._runners.pop(key).status())

    async def _tell(self) -> None:
        if time.monotonic() - self._told >= TELL_EVERY:
            self._told = time.monotonic()
            await asyncio.to_thread(self._report, self.statuses())

    def _report(self, statuses: list[TriggerStatus]) -> None:
        with self._telling:
            if not self._over:
                self._write(statuses)

    def _take_back(self) -> None:
        with self._telling:
            self._over = True
            self._write([])

    def _write(self, statuses: list[TriggerStatus]) -> None:
        everything = [*statuses, *self._memory.rest(statuses)]
        write_statuses(self._site.store, self._site.key, self._site.instance, everything)


def kind_of(trigger: Trigger) -> str:
    """The kind in KINDS of a trigger. A trigger of objects may receive notifications from a topic or by requests, or
    poll."""
    if reading_of(trigger) is not None:
        return "kafka"
    if isinstance(trigger, ObjectTrigger):
        return "poll" if trigger.poll is not None else "webhook"
    return trigger.type


def _make(kind: str, site: TriggerSite, workflow: str, trigger: str) -> TriggerRunner:
    module, _, name = KINDS[kind].partition(":")
    runner: TriggerRunner = getattr(importlib.import_module(module), name)(site, workflow, trigger)
    return runner
