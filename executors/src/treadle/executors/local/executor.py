"""Processes on this machine: one warm worker process for each slot."""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

from treadle.primitives.channels.gang import MeetingPlace
from treadle.primitives.errors import InternalError, UsageError

from .. import memory_limit
from ..interface import STOPPED, Capabilities
from ..plugin import no_secret
from ..program import Report, Task
from ..spill.memory_budget import room_of
from ..worker.environment import worker_environment
from ..worker.messages import RunTask, Setup
from .attempt import LocalAttempt
from .child_process import starting
from .gang_coordinator import GangCoordinator
from .orphan_guard import Guard
from .worker_process import WorkerProcess

CANCELLED = "the attempt was cancelled"
OTHER_BUNDLE = "another bundle was needed"


class LocalExecutor:
    """Slots that are processes of this machine and share its memory with the driver.

    `memory`: bytes one attempt may allocate if its task does not set it (None: the machine's memory). `room`: bytes of
    records that may wait in memory before they are spilled (None: a share of `memory`). `host_root`: the folder of host
    blocks, or None. `run_key` returns the key of a run by its id, `secrets` a secret by its name. `environment`
    replaces the driver's environment.
    """

    def __init__(
        self,
        *,
        run_key: Callable[[str], bytes],
        slots: int | None = None,
        memory: int | None = None,
        room: int | None = None,
        host_root: str | None = None,
        cache_bytes: int = 256 << 20,
        secrets: Callable[[str], str] = no_secret,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        count = memory_limit.processors() if slots is None else slots
        if count < 1:
            raise UsageError(f"the local executor needs at least one slot, not {count}", "Give slots=1 or more.")
        bound = memory_limit.host_memory() if memory is None else memory
        share = room_of(bound // count if memory is None else bound) if room is None else room
        setup = Setup(os.getpid(), host_root, cache_bytes, share)
        self._guard = Guard()
        own = worker_environment(os.environ if environment is None else environment)
        worker = functools.partial(WorkerProcess, setup, own, self._guard)
        key = functools.lru_cache(maxsize=1000)(run_key)
        shares = host_root is not None
        self.capabilities = Capabilities("local", count, shares_host=shares, memory_limit=bound, gangs=True)
        self._slots = [LocalSlot(f"local-{i}", worker, bound, key, secrets) for i in range(count)]
        self._gangs = GangCoordinator(key)

    @property
    def slots(self) -> Sequence[LocalSlot]:
        return self._slots

    async def start(self) -> None:
        """Start all workers that are not running, concurrently. Raises InternalError when a worker fails to start."""
        await asyncio.gather(*(slot.start() for slot in self._slots))

    @asynccontextmanager
    async def gang_place(self, run: str) -> AsyncIterator[MeetingPlace]:  # noqa: ARG002
        """See `GangExecutor`."""
        async with self._gangs.coordinator() as server:
            yield MeetingPlace(server, server.address, one_host=self.capabilities.shares_host)

    async def stop(self) -> None:
        """Kill every worker and its descendants; return when they are gone. Running attempts are reported as lost."""
        await asyncio.gather(*(slot.stop() for slot in self._slots))
        self._guard.close()


class LocalSlot:
    """One warm worker process. It is replaced after it died, ran out of memory or imported another bundle."""

    def __init__(
        self,
        name: str,
        start: Callable[[], WorkerProcess],
        memory: int,
        run_key: Callable[[str], bytes],
        secrets: Callable[[str], str],
    ) -> None:
        self.name = name
        self._start = start
        self._memory = memory
        self._run_key = run_key
        self._secrets = secrets
        self._worker: WorkerProcess | None = None
        self._busy = False
        self._preparing = ""
        """Id of a task that waits for its worker."""

    @property
    def task(self) -> str:
        """See `Slot.task`. It is the worker's task, so it is empty if the worker died or has lost it, and remains set
        if the worker outlives the attempt."""
        return self._preparing or (self._worker.task if self._worker is not None else "")

    async def start(self) -> None:
        """Start the worker if necessary, and wait until it accepts tasks."""
        await self._ready_worker()

    async def stop(self) -> None:
        """Kill the worker, and the next one if a task is about to start it."""
        while self._busy or (self._worker is not None and self._worker.child.alive):
            if self._worker is not None:
                await self._worker.child.end(STOPPED)
            await asyncio.sleep(0.001)

    async def run(self, task: Task, report: Callable[[Report], None]) -> None:
        """See `Slot.run`. An exception from `report` ends the attempt and is raised here."""
        if self._busy:
            raise InternalError(f"slot {self.name} runs a task already")
        self._busy, self._preparing = True, task.id
        try:
            await self._run(task, report)
        finally:
            self._busy, self._preparing = False, ""

    async def _run(self, task: Task, report: Callable[[Report], None]) -> None:
        secrets = {name: self._secrets(name) for name in task.program.secrets}
        message = RunTask(task, self._run_key(task.job.run), task.memory or self._memory, secrets)
        worker = await self._worker_for(task.job.bundle)
        attempt = LocalAttempt(worker, message, report)
        try:
            self._preparing = ""
            await attempt.run()
        finally:
            if not attempt.clean:
                await worker.child.end(CANCELLED)

    async def _worker_for(self, bundle: str) -> WorkerProcess:
        """A worker that has imported from no other bundle."""
        if self._worker is not None and self._worker.bundle not in (None, bundle):
            await self._worker.child.end(OTHER_BUNDLE)
        worker = await self._ready_worker()
        worker.bundle = bundle
        return worker

    async def _ready_worker(self) -> WorkerProcess:
        worker = self._worker
        if worker is None or not worker.child.alive:
            with starting():
                worker = self._worker = self._start()
        death = await worker.wait_ready()
        if death is not None and not death.killed:
            log = death.log.decode(errors="replace")
            raise InternalError(f"a worker process did not start: {memory_limit.exit_words(death.code)}", log)
        return worker
