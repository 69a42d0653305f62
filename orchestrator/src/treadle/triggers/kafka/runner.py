"""A trigger that reads Kafka topics, in this process: a thread with its loop, which is replaced when the topics
change."""

from __future__ import annotations

import asyncio
import logging
import queue
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial

from msgspec.structs import asdict

from treadle.orchestrator.environment.connection_errors import Unreachable
from treadle.primitives.asyncio_tasks import spawn
from treadle.primitives.errors import StoreError, TreadleError

from ..registry.deployment import Deployment
from ..run_ids import label
from ..trigger_runner import Counts, State, TriggerSite, TriggerStatus
from .cluster_interface import ConsumerBroken, ConsumerFenced
from .confluent_cluster import ClusterSource
from .connectivity import Connectivity
from .dead_letters import Graveyard
from .effects import ThreadHands
from .loop import TriggerLoop
from .machine import TriggerMachine
from .machine_events import Happening, MaxActiveChanged, RunsCounted
from .matching import Lineage, lineage
from .offsets import KafkaPositions, StoredMarks, group_of
from .payloads import Payloads, ask_topic
from .reader_settings import ReaderSettings, reading_of

_log = logging.getLogger("treadle.triggers")
COUNT_EVERY = 2.0
"""Seconds between two counts of open runs."""
AGAIN = 5.0
"""Seconds before a broken loop is replaced."""
LEAVE = 5.0
"""Seconds at the end for dead letters that are being written."""


class TriggerGone(TreadleError):
    """The newest version has no such trigger any more, or a different one with its name; the loop ends."""


class _Latest:
    """The versions of one trigger at the last look."""

    def __init__(self, look: Callable[[], Lineage], at: Lineage) -> None:
        self._look, self.lineage = look, at

    def look(self) -> Lineage:
        """Raises TriggerGone for another trigger of the same name."""
        found = self._look()
        if found.born != self.lineage.born:
            raise TriggerGone(f"{label(found.workflow, found.name)} is another trigger now")
        self.lineage = found
        return found


class KafkaRunner:
    """See TriggerRunner."""

    def __init__(self, site: TriggerSite, workflow: str, trigger: str) -> None:
        self._site, self._workflow, self._trigger = site, workflow, trigger
        self._positions = KafkaPositions(site.home, site.profile)
        self._ending, self._ended = threading.Event(), asyncio.Event()
        self._paused = False
        self._instance = site.instance
        self._version = 0
        self._type = "kafka"
        self._reading: ReaderSettings | None = None
        """Settings of the newest version. If it has dropped a topic, no record may ever show that."""
        self._known: tuple[tuple[int, ...], Lineage] | None = None
        self._loop: TriggerLoop | None = None
        self._open: int | None = None
        """Open runs at the last count; None: unknown."""
        self._error = self._uncounted = ""
        self._failed = False
        self._past = Counts()
        """Counts of ended loops."""

    # -- TriggerRunner

    async def start(self) -> None:
        running = asyncio.get_running_loop()
        name = f"trigger {label(self._workflow, self._trigger)}"
        threading.Thread(target=self._run, args=(running,), name=name, daemon=True).start()
        self._counting = spawn(self._count())

    async def update(self, deployment: Deployment, paused: bool) -> None:
        self._version, self._paused = deployment.version, paused
        self._type = deployment.spec.triggers[self._trigger].type
        self._reading = reading_of(deployment.spec.triggers.get(self._trigger))
        if self._loop is not None and self._reading is not None:
            self._loop.tell(MaxActiveChanged(self._reading.max_active))

    async def stop(self) -> None:
        self._ending.set()
        await self._ended.wait()  # without a thread of the pool, which starts in progress need
        self._counting.cancel()

    def status(self) -> TriggerStatus:
        loop = self._loop
        counts = self._past + counts_of(loop.machine) if loop else self._past
        return TriggerStatus(
            self._workflow,
            self._trigger,
            self._type,
            self._version,
            self._state(loop),
            active=loop.machine.active if loop and self._open is not None and not self._uncounted else None,
            lag=loop.known_lag if loop else None,
            error=self._trouble(loop) or self._error,
            time=time.time(),
            **asdict(counts),
        )

    def _state(self, loop: TriggerLoop | None) -> State:
        if self._ending.is_set():
            return "stopped"
        if loop is None:
            return "failed" if self._failed else "failing" if self._error else "starting"
        if self._paused:
            return "paused"
        return "failing" if self._trouble(loop) else "running"

    def _trouble(self, loop: TriggerLoop | None) -> str:
        return (loop.trouble or loop.error or loop.machine.trouble if loop else "") or self._uncounted

    async def _count(self) -> None:
        while True:
            if self._reading is not None and self._reading.max_active is not None:
                await self._count_once()
            else:
                self._open, self._uncounted = None, ""
            await asyncio.sleep(COUNT_EVERY)

    async def _count_once(self) -> None:
        try:
            self._open = await self._site.starter.active(self._workflow, self._trigger)
            self._uncounted = ""
            if self._loop is not None:
                self._loop.tell(RunsCounted(self._open))
        except TreadleError as error:
            self._uncounted = str(error)
            _log.info("%s", error)
        except Exception:  # noqa: BLE001  # the next count may succeed
            _log.exception("runs of %s", label(self._workflow, self._trigger))

    # -- the thread

    def _run(self, running: asyncio.AbstractEventLoop) -> None:
        while not self._ending.is_set():
            try:
                self._live(running, self._look())
                self._error, self._failed = "", False
            except ConsumerFenced as error:
                self._instance = f"{self._site.instance}-{secrets.token_hex(2)}"
                self._told(str(error), failed=False)
            except TreadleError as error:
                self._told(str(error), failed=not _passes(error))
            except Exception as defect:  # noqa: BLE001  # a defect of one trigger must not end it or others
                _log.exception("trigger %s", label(self._workflow, self._trigger))
                self._told(f"{type(defect).__name__}: {defect}", failed=True)
        running.call_soon_threadsafe(self._ended.set)

    def _told(self, error: str, *, failed: bool) -> None:
        self._failed, self._error = failed, error
        self._ending.wait(AGAIN)

    def _live(self, running: asyncio.AbstractEventLoop, at: Lineage) -> None:
        """Run the loop until the end, or until the topics change."""
        with self._opened(running, at) as loop:
            if self._open is not None:
                loop.tell(RunsCounted(self._open))
            while not self._ending.is_set() and not self._moved(at):
                loop.step(self._paused)

    @contextmanager
    def _opened(self, running: asyncio.AbstractEventLoop, at: Lineage) -> Iterator[TriggerLoop]:
        """The loop for the topics of `at`, with its consumer, its dead letters and its starts."""
        reading, latest = at.newest.reading, _Latest(self._look, at)
        settings = self._positions.settings(reading.connection)
        group = group_of(self._site.key, self._workflow, self._trigger, at.born)
        machine = TriggerMachine(lambda number: latest.lineage.batching(number), reading.max_active)
        told = Connectivity(reading.connection)
        source = partial(ClusterSource, settings, group, self._instance, reading.topics, connectivity=told)
        inbox: queue.SimpleQueue[Happening] = queue.SimpleQueue()
        whose = label(self._workflow, self._trigger)
        graveyard = Graveyard(settings, reading.letters, whose, group, inbox.put, told)
        payloads = Payloads(self._site.store, self._site.key, partial(ask_topic, settings))
        starter = self._site.starter
        hands = ThreadHands(running, starter, payloads.value, lambda: latest.lineage, inbox.put, graveyard)
        marks = StoredMarks(self._site.store, self._site.key, group)
        self._loop = loop = TriggerLoop(machine, source, latest.look, hands, marks, inbox)
        try:
            yield loop
        finally:
            self._loop = None
            with suppress(TreadleError):
                loop.close()
            graveyard.close(LEAVE)
            hands.close()
            self._past += counts_of(machine)

    # -- versions

    def _moved(self, at: Lineage) -> bool:
        """Whether the loop created for `at` reads outdated topics, according to the registry or to `update`."""
        assert self._known is not None
        _, last = self._known
        newest = self._reading if self._reading and self._version > last.newest.version else last.newest.reading
        return last.born != at.born or not _alike(newest, at.newest.reading)

    def _look(self) -> Lineage:
        """The current versions of the trigger. It measures start offsets that are missing."""
        history = self._site.registry.history(self._workflow)
        numbers = tuple(one.version for one in history)
        if self._known is None or self._known[0] != numbers:
            if any(one.begins is None for one in history):
                history = self._settled(history)
            found = lineage(history, self._trigger)
            if found is None:
                raise TriggerGone(f"{self._workflow} has no trigger {self._trigger} any more")
            self._known = numbers, found
        return self._known[1]

    def _settled(self, history: list[Deployment]) -> list[Deployment]:
        """Measure the start offsets of versions whose deployment did not record them: such a version begins now."""
        done: list[Deployment] = []
        for one in history:
            if one.begins is None:
                before = done[-1] if done and not done[-1].removed else None
                asked = {} if one.removed else self._positions.begins(one, before)
                one = self._site.registry.settle(one, asked)
            done.append(one)
        return done


def counts_of(machine: TriggerMachine) -> Counts:
    """The counts of a loop's machine."""
    return Counts(machine.started, machine.dead, machine.received, machine.repeated, machine.filtered)


def _passes(error: TreadleError) -> bool:
    """Whether the error may disappear without user action."""
    return isinstance(error, Unreachable | ConsumerBroken | TriggerGone) or (
        isinstance(error, StoreError) and error.retryable
    )


def _alike(one: ReaderSettings, other: ReaderSettings) -> bool:
    same = (one.connection, one.letters) == (other.connection, other.letters)
    return same and sorted(one.topics) == sorted(other.topics)
