"""Classifies the failure of an attempt whose worker process ended."""

from __future__ import annotations

from collections.abc import Mapping

from treadle.primitives.errors import FailureClass

from ..memory_limit import exit_words
from ..program import Failure, Partition, Task
from ..redaction import Redactor
from ..worker.log import publish
from .child_process import Death

TIMED_OUT = "timed out"
"""The reason with which the local executor kills a worker that is late."""

_NEAR = 0.9
_OUT_OF_MEMORY_SIGNALS = (-9, -6)
"""SIGKILL comes from the kernel, SIGABRT from C++ code that cannot allocate."""


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
