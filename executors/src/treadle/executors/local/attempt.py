"""One task in one worker process: its reports, its time limit, and the meaning of its end."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Mapping

from treadle.primitives.errors import FailureClass

from ..memory_limit import exit_words
from ..program import Failure, Partition, Report, Task
from ..redaction import Redactor
from ..worker.log import publish
from ..worker.messages import RunTask, TaskDone
from .child_process import Death
from .worker_process import Event, WorkerProcess

TIMED_OUT = "timed out"
"""The reason with which the local executor kills a worker that is late."""
_NEAR = 0.9
_OUT_OF_MEMORY_SIGNALS = (-9, -6)
"""SIGKILL comes from the kernel, SIGABRT from C++ code that cannot allocate."""
_DUMP_SECONDS = 0.5
"""Seconds a late worker gets to write its stacks to the log."""
_DUMP_POLL = 0.02


class LocalAttempt:
    """One task in one worker, from sending the task to the end of the attempt."""

    def __init__(self, worker: WorkerProcess, message: RunTask, report: Callable[[Report], None]) -> None:
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
        if self._worker.child.death.done():  # the worker died while starting
            self._hear(self._worker.child.death.result())
        self._worker.give(self._message)
        try:
            if self._task.timeout:
                await self._keep_time()
            await self._over
        finally:
            self._over.cancel()  # ignore further messages of a worker that is being killed

    async def _keep_time(self) -> None:
        """Kill the worker when a partition takes longer than the task allows. Returns when the attempt is over."""
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
        except Exception as error:  # noqa: BLE001 (passed to the caller of `run`)
            self._over.set_exception(error)

    def _take(self, event: Event) -> None:
        if isinstance(event, TaskDone):
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
        """Log the stacks, then kill the worker. A report that arrives meanwhile prevents the kill."""
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


def failure_at_death(
    task: Task, partition: Partition, death: Death, memory: int, secrets: Mapping[str, str]
) -> Failure:
    """The single Failure of an attempt whose worker ended during `partition`.

    `memory`: bytes the attempt was allowed to allocate; 0: no limit.
    """
    failure, how = _classify(task, death, memory)
    log = publish(death.log, Redactor(secrets))
    return Failure(
        partition.index,
        partition.attempt,
        failure,
        how,
        message=how,
        traceback=_stacks(log),
        log=log,
        peak_memory=death.peak_memory,
    )


def _classify(task: Task, death: Death, memory: int) -> tuple[FailureClass, str]:
    if death.killed == TIMED_OUT:
        return FailureClass.TIMED_OUT, f"the partition ran longer than its {task.timeout:g} s"
    if death.killed:
        return FailureClass.WORKER_LOST, death.killed
    how = exit_words(death.code)
    if death.code == -9 and death.oom_kills > 0:
        return FailureClass.OUT_OF_MEMORY, f"{how}; the kernel killed {death.oom_kills} for want of memory meanwhile"
    if death.code in _OUT_OF_MEMORY_SIGNALS and memory and death.peak_memory > _NEAR * memory:
        return FailureClass.OUT_OF_MEMORY, f"{how}; its peak of {death.peak_memory} bytes was near the limit {memory}"
    return FailureClass.WORKER_LOST, how


def _stacks(log: bytes) -> str:
    """The stack of each thread: the last dump of faulthandler in the log."""
    text = log.decode(errors="replace")
    starts = [text.rfind(f"\n{mark}") + 1 or (0 if text.startswith(mark) else -1) for mark in _MARKS]
    start = min((found for found in starts if found >= 0), default=len(text))
    return text[start:]


_MARKS = ("Fatal Python error:", "Thread 0x", "Current thread 0x")
