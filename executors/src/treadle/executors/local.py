"""Processes on this machine: one warm worker process for each slot."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import signal
from collections.abc import Callable, Mapping, Sequence

from treadle.primitives.errors import FailureClass, InternalError, UsageError

from . import limits
from .interface import Capabilities
from .local_child import Death
from .local_failures import TIMED_OUT, failure_at_death
from .local_process import Event, WorkerProcess
from .program import Failure, Report, Task
from .worker_environment import worker_environment
from .worker_messages import Done, Run, Setup

STOPPED = "the executor was stopped"
CANCELLED = "the attempt was cancelled"

_DUMP_SECONDS = 0.5
"""How long a late worker gets to write its stacks down."""
_DUMP_POLL = 0.02


def _no_secret(name: str) -> str:
    raise UsageError(f"there is no secret {name!r}", "This executor was made without secrets.")


class LocalExecutor:
    """Slots that are processes of this machine and share its memory with the driver.

    `memory` is what one attempt may allocate when its task does not say (None: what the machine has); `host_root` is
    the folder of host blocks, None for none; `run_key` gives the key of a run by its id, `secrets` a secret by its
    name; `path` goes before the workers' `sys.path`.
    """

    def __init__(
        self,
        *,
        run_key: Callable[[str], bytes],
        slots: int | None = None,
        memory: int | None = None,
        host_root: str | None = None,
        cache_bytes: int = 256 << 20,
        secrets: Callable[[str], str] = _no_secret,
        path: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        count = len(os.sched_getaffinity(0)) if slots is None else slots
        if count < 1:
            raise UsageError(f"the local executor needs at least one slot, not {count}", "Give slots=1 or more.")
        bound = limits.host_memory() if memory is None else memory
        setup = Setup(os.getpid(), host_root, cache_bytes, tuple(path))
        inherited = worker_environment(os.environ if environment is None else environment)
        key = functools.lru_cache(maxsize=1000)(run_key)
        self.capabilities = Capabilities("local", count, shares_host=host_root is not None, memory_limit=bound)
        self._slots = [LocalSlot(f"local-{i}", setup, inherited, bound, key, secrets) for i in range(count)]

    @property
    def slots(self) -> Sequence[LocalSlot]:
        return self._slots

    async def start(self) -> None:
        """Start every worker that is not running, all at once. Raises InternalError when one does not come up."""
        await asyncio.gather(*(slot.start() for slot in self._slots))

    async def stop(self) -> None:
        """Kill every worker and what it started; returns when they are gone. Attempts under way are reported lost."""
        await asyncio.gather(*(slot.stop() for slot in self._slots))


class LocalSlot:
    """One warm worker process, replaced when it died, ran out of memory or imported another bundle."""

    def __init__(
        self,
        name: str,
        setup: Setup,
        environment: Mapping[str, str],
        memory: int,
        run_key: Callable[[str], bytes],
        secrets: Callable[[str], str],
    ) -> None:
        self.name = name
        self._setup = setup
        self._environment = environment
        self._memory = memory
        self._run_key = run_key
        self._secrets = secrets
        self._worker: WorkerProcess | None = None

    async def start(self) -> None:
        worker = self._worker
        if worker is None or not worker.child.alive:
            worker = self._worker = WorkerProcess(self._setup, self._environment)
        death = await worker.wait_ready()
        if death is not None and not death.killed:
            log = death.log.decode(errors="replace")
            raise InternalError(f"a worker process did not start: {limits.exit_words(death.code)}", log)

    async def stop(self) -> None:
        if self._worker is not None:
            await self._worker.child.end(STOPPED)

    async def run(self, task: Task, report: Callable[[Report], None]) -> None:
        """See `Slot.run`. What `report` raises ends the attempt and is raised here."""
        message = Run(
            task,
            self._run_key(task.job.run),
            task.memory or self._memory,
            {name: self._secrets(name) for name in task.program.secrets},
        )
        worker = await self._worker_for(task.job.bundle)
        attempt = _Attempt(worker, message, report)
        try:
            await attempt.run()
        finally:
            if not attempt.clean:
                await worker.child.end(CANCELLED)

    async def _worker_for(self, bundle: str) -> WorkerProcess:
        worker = self._worker
        if worker is not None and worker.bundle not in (None, bundle):
            await worker.child.end("another bundle was needed")
        await self.start()
        assert self._worker is not None
        self._worker.bundle = bundle
        return self._worker


class _Attempt:
    """One task in one worker, from its sending to its end."""

    def __init__(self, worker: WorkerProcess, message: Run, report: Callable[[Report], None]) -> None:
        self._worker = worker
        self._message = message
        self._task = message.task
        self._report = report
        self._reported = 0
        self._loop = asyncio.get_running_loop()
        self._progress = self._loop.time()
        self._over: asyncio.Future[None] = self._loop.create_future()
        self.clean = False
        """The worker may run another task."""
        self._starved = False

    async def run(self) -> None:
        self._worker.listener = self._hear
        if self._worker.child.death.done():  # stopped while it started
            self._hear(self._worker.child.death.result())
        self._worker.send(self._message)
        if self._task.timeout:
            await self._keep_time()
        await self._over

    async def _keep_time(self) -> None:
        """Until the attempt is over: kill it when a partition takes longer than the task allows."""
        while not self._over.done():
            left = self._progress + self._task.timeout - self._loop.time()
            if left > 0:
                await asyncio.wait({self._over}, timeout=left)
            else:
                await self._time_out()

    def _hear(self, event: Event) -> None:
        if self._over.done():
            return
        try:
            self._take(event)
        except Exception as error:  # noqa: BLE001 (it is the caller's, and goes there)
            self._over.set_exception(error)

    def _take(self, event: Event) -> None:
        if isinstance(event, Done):
            self.clean = not self._starved
            self._over.set_result(None)
        elif isinstance(event, Death):
            if self._reported < len(self._task.partitions):
                self._report(self._failure(event))
            self._over.set_result(None)
        else:
            self._reported += 1
            self._progress = self._loop.time()
            self._starved |= isinstance(event, Failure) and event.failure is FailureClass.OUT_OF_MEMORY
            self._report(event)

    def _failure(self, death: Death) -> Failure:
        partition = self._task.partitions[self._reported]
        return failure_at_death(self._task, partition, death, self._message.memory, self._message.secrets)

    async def _time_out(self) -> None:
        """Write down where it was, then kill; a report that comes meanwhile saves it."""
        late, seen = self._reported, -1
        self._worker.child.signal(signal.SIGUSR1)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_DUMP_SECONDS):
                while (size := len(self._worker.child.read_log())) != seen or seen == 0:
                    seen = size
                    await asyncio.sleep(_DUMP_POLL)
        if self._reported == late and not self._over.done():
            self._worker.child.kill(TIMED_OUT)
            await asyncio.wait({self._over})
