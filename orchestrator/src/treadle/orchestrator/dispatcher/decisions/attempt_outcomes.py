"""The consequence of an ended attempt for its partition. Pure.

class            attempt spent  next
user error       yes            again after back-off; final at maximumAttempts or when not retryable
out of memory    yes            again with twice the memory, up to `memory.max`
timed out        yes            again after back-off
throttled        no             again after back-off, which grows
worker lost      no             again; the tenth loss of one partition without progress is `poison`, final
data corrupt,    no             with lost blocks: the segment stops and names them, and their producer runs again;
unreachable                     without: final if corrupt or not retryable, else again after back-off, ten times
internal         yes            final

If the stage is not idempotent, every class is final, and an attempt that was cut off is `unknown outcome`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping

import msgspec
from msgspec import Struct

from treadle.dsl.units import format_size
from treadle.executors.program import Failure
from treadle.primitives.errors import FailureClass

from ...plan.plan import Policy

MAXIMUM_LOSSES = 10
"""Worker losses of one partition before it counts as poison."""
MAXIMUM_CRASHES = 30
"""Driver deaths during one partition before it counts as poison. More than losses, as a death hits all running
partitions."""
_STEEPEST, _STEPS = 1e5, 60
"""Limits of a back-off's base and exponent. Beyond them the pause is the maximum interval, and a float may overflow."""

_WITHOUT_ATTEMPT = {
    FailureClass.THROTTLED,
    FailureClass.WORKER_LOST,
    FailureClass.CORRUPT,
    FailureClass.UNREACHABLE,
}

_WITHOUT_BLAME = {FailureClass.THROTTLED, FailureClass.WORKER_LOST}
"""Failures that do not count as the partition's fault until they happen too often."""


class Past(Struct, frozen=True):
    """The numbers of earlier attempts by partition, from the ledger."""

    starts: Mapping[int, int] = {}
    """Number of the newest attempt."""
    spent: Mapping[int, int] = {}
    """Attempts that count against maximumAttempts."""
    losses: Mapping[int, int] = {}
    """Attempts whose worker was lost."""
    crashes: Mapping[int, int] = {}
    """Attempts that an earlier driver's death cut off."""


NOTHING = Past()


class Verdict(Struct, frozen=True):
    """The decision about a failure: whether it is final, and whether the attempt counts."""

    failure: Failure
    final: bool
    spent: bool


class Budgets:
    """The attempts, losses and memory that the partitions of a segment have used up."""

    def __init__(self, policy: Policy, past: Past) -> None:
        self._policy = policy
        self._maximum_attempts = policy.maximum_attempts if policy.idempotent else 1
        self._spent, self._losses = Counter(past.spent), Counter(past.losses)
        self._throttles: Counter[int] = Counter()
        self._memory: dict[int, int] = {}

    def memory(self, partition: int) -> int:
        """Bytes that the partition's next attempt may allocate; 0: the slot's own limit."""
        return self._memory.get(partition, self._policy.memory_start)

    def is_last(self, partition: int) -> bool:
        """Returns whether a failure of the partition's next attempt would be final."""
        return self._spent[partition] + 1 >= self._maximum_attempts

    def progressed(self, partition: int) -> None:
        """The partition has saved its progress: losses before do not count any more."""
        self._losses[partition] = 0

    def judge(self, failure: Failure) -> Verdict:
        """Count the failed attempt and decide its consequence."""
        partition, losses = failure.partition, 0
        spent = failure.failure not in _WITHOUT_ATTEMPT
        if spent:
            self._spent[partition] += 1
        elif failure.failure is FailureClass.THROTTLED:
            self._throttles[partition] += 1
        else:
            losses = self._losses[partition] = self._losses[partition] + 1
        if failure.lost:
            return Verdict(failure, final=False, spent=False)
        if not self._policy.idempotent and failure.failure is FailureClass.WORKER_LOST:
            unknown = _as(failure, FailureClass.UNKNOWN_OUTCOME, "cut off, and the stage is not idempotent")
            return Verdict(unknown, final=True, spent=True)
        if losses >= MAXIMUM_LOSSES:
            lost = failure.failure is FailureClass.WORKER_LOST
            worse = _as(failure, FailureClass.POISON, f"{losses} losses; the last: {failure.how}") if lost else failure
            return Verdict(worse, final=True, spent=spent)
        hopeless = not failure.retryable or failure.failure in (FailureClass.INTERNAL, FailureClass.CORRUPT)
        exhausted = spent and self._spent[partition] >= self._maximum_attempts
        final = (hopeless and failure.failure not in _WITHOUT_BLAME) or exhausted
        if failure.failure is FailureClass.OUT_OF_MEMORY and not final:
            failure = self._grown(failure)
        return Verdict(failure, final, spent)

    def pause(self, failure: Failure) -> float:
        """Seconds before the partition is tried again, after `judge` has seen the failure."""
        if failure.failure is FailureClass.WORKER_LOST:
            return 0.0
        policy, partition = self._policy, failure.partition
        tries = self._spent[partition] + self._losses[partition] + self._throttles[partition]
        factor = math.pow(min(policy.backoff_coefficient, _STEEPEST), min(tries - 1, _STEPS))
        return min(policy.initial_interval * factor, policy.maximum_interval)

    def _grown(self, failure: Failure) -> Failure:
        """The failure of an attempt that ran out of memory. Its message names the next attempt's memory if it grew."""
        now = self.memory(failure.partition)
        if not 0 < now < self._policy.memory_max:
            return failure
        more = self._memory[failure.partition] = min(2 * now, self._policy.memory_max)
        known = f"it had {format_size(now)} of memory; the next attempt has {format_size(more)}"
        return msgspec.structs.replace(failure, message=f"{failure.message} ({known})" if failure.message else known)


def crashed(partition: int, attempt: int) -> Failure:
    """The failure of a partition during which drivers died too often."""
    how = f"the driver died {MAXIMUM_CRASHES} times while it ran"
    text = f"{how}; see that it does not exhaust the machine, then: treadle resume"
    return Failure(partition, attempt, FailureClass.POISON, how, message=text, retryable=False)


def unknown_outcome(partition: int, attempt: int) -> Failure:
    """The failure of a non-idempotent attempt that a dead driver left behind: it may or may not have taken effect."""
    how = "the driver died while it ran, and the stage is not idempotent"
    text = "its outcome is unknown; check the effect, then: treadle resume --assume done|retry"
    return Failure(partition, attempt, FailureClass.UNKNOWN_OUTCOME, how, message=text, retryable=False)


def _as(failure: Failure, kind: FailureClass, how: str) -> Failure:
    return msgspec.structs.replace(failure, failure=kind, how=how)
