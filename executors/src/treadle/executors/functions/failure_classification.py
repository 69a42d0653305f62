"""The failure of an attempt whose call ended without reports. Pure."""

from __future__ import annotations

from treadle.primitives.errors import FailureClass, StoreError, UsageError

from ..program import Failure, Task
from .invoker import Answer, NotRun
from .payload import VERSION, Response

_CLASSES = {
    "crashed": FailureClass.WORKER_LOST,
    "out of memory": FailureClass.OUT_OF_MEMORY,
    "timed out": FailureClass.TIMED_OUT,
}
_LATE = "it was accepted, and no reports came in its time"


def failure_at_end(task: Task, answer: Answer) -> Failure:
    """The failure of a call that ended, or was given up, without reports."""
    how = answer.how or (_LATE if answer.ended == "accepted" else answer.ended)
    failure = _CLASSES.get(answer.ended, FailureClass.WORKER_LOST)
    return failure_of(task, failure, how, answer.log, answer.peak_memory)


def failure_of(task: Task, failure: FailureClass, how: str, log: bytes = b"", peak_memory: int = 0) -> Failure:
    """The single Failure of a whole attempt. It names a partition only if the attempt had exactly one."""
    only = task.partitions[0] if len(task.partitions) == 1 else None
    return Failure(
        -1 if only is None else only.index,
        task.partitions[0].attempt,
        failure,
        how,
        message=how,
        log=log,
        peak_memory=peak_memory,
    )


def unreachable(task: Task, error: StoreError) -> Failure:
    """The failure of an attempt that a store error prevented, or whose reports the store does not return."""
    return failure_of(task, FailureClass.THROTTLED if error.throttled else FailureClass.UNREACHABLE, error.message)


def refuse(response: Response, provider: str) -> None:
    """Raise UsageError when the function reports a mismatch with this driver, and NotRun when it could not read its
    order."""
    hint = f"Deploy this driver's package: treadle deploy {provider}"
    if response.problem == "version":
        raise UsageError(f"the function runs treadle {response.version}, this driver is {VERSION}", hint)
    if response.problem == "key":
        raise UsageError("the function has another deployment key than this driver", hint)
    if response.problem == "no key":
        raise UsageError("the function was deployed without a deployment key", hint)
    if response.problem == "key source":
        raise UsageError(
            "the function cannot read its deployment key",
            f"See its log; then put the key where `deploy.key` says, with its role: treadle deploy {provider}",
        )
    if response.problem == "coordinator":
        raise UsageError(
            "the functions cannot reach this driver's coordinator",
            "Open its port to them, or take `members` out of the executor's table.",
        )
    if response.problem == "order":
        raise NotRun("the function could not read its order from the store", "See that its role may read it.")
