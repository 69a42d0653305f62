"""The failure class of an attempt by the end of its worker: a table."""

from __future__ import annotations

import pytest

from treadle.executors.local.attempt import TIMED_OUT, failure_at_death
from treadle.executors.local.child_process import Death
from treadle.executors.program import ItemSplit, Job, Keep, Partition, Program, Task
from treadle.primitives.errors import FailureClass

_GIB = 1 << 30
_TASK = Task(
    "t",
    Job("run", "workflow", "2026-01-01T00:00:00Z", 0, "memory://", ""),
    Program("stage", (), Keep()),
    (Partition(4, ItemSplit(()), 2), Partition(5, ItemSplit(()), 3)),
    timeout=2.0,
)


def _death(code: int = -9, killed: str = "", log: bytes = b"", peak_memory: int = 0, oom_kills: int = 0) -> Death:
    return Death(code, killed, log, peak_memory, oom_kills)


@pytest.mark.parametrize(
    ("death", "failure", "how"),
    [
        (_death(code=3), FailureClass.WORKER_LOST, "exit code 3"),
        (_death(), FailureClass.WORKER_LOST, "signal 9 (SIGKILL)"),
        (_death(oom_kills=1), FailureClass.OUT_OF_MEMORY, "the kernel killed 1 for want of memory"),
        (_death(code=-15, oom_kills=1), FailureClass.WORKER_LOST, "signal 15"),
        (_death(peak_memory=_GIB), FailureClass.OUT_OF_MEMORY, "near the limit"),
        (_death(code=-6, peak_memory=_GIB), FailureClass.OUT_OF_MEMORY, "near the limit"),
        (_death(code=-11, peak_memory=_GIB), FailureClass.WORKER_LOST, "SIGSEGV"),
        (_death(peak_memory=_GIB // 2), FailureClass.WORKER_LOST, "SIGKILL"),
        (_death(killed=TIMED_OUT, peak_memory=_GIB), FailureClass.TIMED_OUT, "longer than its 2 s"),
        (_death(killed="the executor was stopped"), FailureClass.WORKER_LOST, "the executor was stopped"),
    ],
)
def test_class_and_how(death: Death, failure: FailureClass, how: str) -> None:
    found = failure_at_death(_TASK, _TASK.partitions[0], death, _GIB, {})
    assert found.failure is failure
    assert how in found.how


def test_failure_names_the_partition_under_way() -> None:
    named = failure_at_death(_TASK, _TASK.partitions[1], _death(), 0, {})
    assert (named.partition, named.attempt) == (5, 3)


def test_stacks_at_the_end_of_the_log_become_the_traceback() -> None:
    dump = b'Current thread 0x1 (most recent call first):\n  File "x.py", line 3 in f\n'
    found = failure_at_death(_TASK, _TASK.partitions[0], _death(log=b"printed\n" + dump), 0, {})
    assert found.traceback == dump.decode()
    assert found.log == b"printed\n" + dump


def test_secrets_are_taken_out_of_log_and_stacks() -> None:
    death = _death(log=b"Fatal Python error: hunter2\nhunter2")
    found = failure_at_death(_TASK, _TASK.partitions[0], death, 0, {"password": "hunter2"})
    assert "hunter2" not in repr(found)
