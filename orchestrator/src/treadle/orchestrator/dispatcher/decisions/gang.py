"""A gang: n partitions that run together, and fail or are committed as one. Pure: the clock is passed in.

`Dispatch` sees a gang as a single partition: one attempt, one failure, one budget. This module makes n slots into one
attempt:

    waits     -- n slots are free -->         runs, a partition in each
    runs      -- all outcomes arrived -->     committed, all in one record of the ledger
    runs      -- all states arrived -->       runs, with a checkpoint: one record of the ledger
    runs      -- a member failed -->          breaks: the other members are ended, their outcomes do not count
    breaks    -- every slot is free -->       judged by the first failure; waits again, or has failed

A failure that only follows from another one (a member's channel lost its partner) may be reported before its cause. So
it ends the other members only after `GRACE`; a cause that is reported within that time replaces it. The other members
are asked to leave, and after `LEAVE` killed.

A gang takes all n slots or none (see `slot_pool`), so two gangs that want the same slots never hold a part of them
each. This is gang scheduling (Ousterhout 1982) without time slices.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from treadle.executors.program import Failure, Outcome
from treadle.primitives.encoding.references import BlockRef
from treadle.primitives.errors import FailureClass

from ...plan.plan import Policy
from .attempt_outcomes import NOTHING, Past, Verdict
from .dispatch import Assignment, Dispatch
from .task_sizing import TaskSizes

GRACE = 5.0
"""Seconds that the other members may still run after a failure that follows from another one."""
LEAVE = 2.0
"""Seconds in which the other members leave by themselves once the cause is known, which keeps their processes."""
_ALL = "gang"
"""The slot of a gang in `Dispatch`."""


class GangDispatch(Dispatch):
    """The state of one gang under way. Its limit of concurrency is its size, regardless of the policy."""

    def __init__(self, policy: Policy, past: Past = NOTHING, *, committed: bool = False) -> None:
        """`past` is by partition, as the ledger has it. Members of a gang differ in it only under older plans."""
        counts = (past.starts, past.spent, past.losses, past.crashes)
        super().__init__(policy, () if committed else (0,), TaskSizes(1), Past(*map(_as_one, counts)))
        self.size = policy.gang
        self._members: dict[str, int] = {}
        self._begun = 0
        """Members of the attempt under way that have a slot."""
        self._assignment: Assignment | None = None
        self._outcomes: dict[int, Outcome] = {}
        self._states: dict[int, BlockRef] = {}
        """The states that members have saved for the next checkpoint."""
        self._cause: Failure | None = None

    # -- queries

    @property
    def running(self) -> int:
        return len(self._members)

    def wanted(self, now: float) -> int:
        """Slots that the gang takes at once: its size when it is due to start, otherwise 0."""
        self._release(now)
        return self.size if self._waiting() and not self.stopped else 0

    @property
    def ended_early(self) -> int | None:
        """A partition that is done, and for which other members wait at a checkpoint."""
        return min(self._outcomes.keys() - self._states.keys(), default=None) if self._states else None

    def problem(self) -> tuple[FailureClass, str] | None:
        if not self.failed or self._cause is None:
            return super().problem()
        cause = self._cause
        return self.failed[0].failure, f"the gang failed, partition {cause.partition} first: {cause.text}"

    # -- decisions

    def next_task(self, slot: str, now: float) -> Assignment | None:
        """One member's part of the attempt; called `wanted` times, for a slot each."""
        if self._assignment is None:
            self._assignment = super().next_task(_ALL, now)
            self._begun, self._cause = 0, None
            self._outcomes.clear()
            self._states.clear()
        if self._assignment is None or self._begun == self.size:
            return None
        self._members[slot] = partition = self._begun
        self._begun += 1
        (attempt,) = self._assignment.attempts
        return Assignment((msgspec.structs.replace(attempt, partition=partition),), self._assignment.memory)

    def saved(self, partition: int, state: BlockRef) -> tuple[BlockRef, ...]:
        """Add a member's state for the next checkpoint. Returns every state, in order, once all members have saved
        one."""
        self._states[partition] = state
        if self._cause is not None or len(self._states) < self.size:
            return ()
        states = tuple(self._states[rank] for rank in range(self.size))
        self._states.clear()
        self._budgets.progressed(0)
        return states

    def delivered(self, outcome: Outcome) -> tuple[Outcome, ...]:
        """Add a member's outcome. Returns every outcome, in order, once all members have delivered."""
        if self._cause is not None:
            return ()
        self._outcomes[outcome.partition] = outcome
        if len(self._outcomes) < self.size:
            return ()
        super().done(_ALL, msgspec.structs.replace(outcome, partition=0), 0.0)
        return tuple(self._outcomes[partition] for partition in range(self.size))

    def broke(self, slot: str, failure: Failure) -> bool:
        """Note a member's failure. Returns whether to end the other members now; otherwise they are ended after
        GRACE."""
        failure = msgspec.structs.replace(failure, partition=self._members[slot])
        if self._cause is None or (self._cause.followed and not failure.followed):
            self._cause = failure
        return not self._cause.followed

    def ended(self, slot: str) -> list[int]:
        """A slot is free again. Once all are free, an attempt that was cut off without a failure is queued again."""
        partition = self._members.pop(slot)
        if self._members:
            return []
        self._assignment = None
        super().ended(_ALL)
        return [partition]

    def verdict(self, slot: str, now: float) -> Verdict | None:
        """The verdict on the attempt, if `slot` is its last slot and a member failed. Call it before `ended`."""
        if self._cause is None or set(self._members) - {slot}:
            return None
        judged = self.failed_attempt(_ALL, msgspec.structs.replace(self._cause, partition=0), now)
        return judged and msgspec.structs.replace(
            judged, failure=msgspec.structs.replace(judged.failure, partition=self._cause.partition)
        )


def _as_one(counts: Mapping[int, int]) -> dict[int, int]:
    return {0: max(counts.values())} if counts else {}
