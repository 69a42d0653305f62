"""The partition of a segment that runs next. Pure: the clock is passed in.

A partition is `pending`, `delayed` (until its back-off is over), `running`, `committed` or `failed` (finally). The
module `attempt_outcomes` decides the consequence of an ended attempt.
A partition that takes far too long runs a second time in a free slot (see `backup_tasks`). The first delivery counts;
the other attempt is a rival, to be killed.

A finally failed partition does not stop the others, so that all errors are seen. The segment stops early once the first
ten final failures are one and the same error.

Finally failed records, compared with a stage's tolerance. Pure.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence

import msgspec
from msgspec import Struct

from treadle.executors.program import Failure, Outcome
from treadle.primitives.errors import FailureClass

from ...plan.plan import Policy, Tolerance
from .attempt_outcomes import MAXIMUM_CRASHES, NOTHING, Budgets, Past, Verdict, crashed, unknown_outcome
from .backup_tasks import Backups
from .task_sizing import TaskSizes


class FailedRecords:
    """Record counts of the committed partitions, by stage."""

    def __init__(self, tolerated: Mapping[str, Tolerance]) -> None:
        self._tolerated = tolerated
        self._entered: Counter[str] = Counter()
        self._failed: Counter[str] = Counter()
        self._first: dict[str, str] = {}

    def add(self, outcome: Outcome) -> bool:
        """Count an outcome. Returns whether it exceeds a limit that is checked at once."""
        self._first = {**outcome.first_failed, **self._first}
        for stage, count in outcome.counts.items():
            self._entered[stage] += count.entered
            self._failed[stage] += count.failed
        return any(0 <= tolerance.count < self._failed[stage] for stage, tolerance in self._tolerated.items())

    def problem(self) -> str:
        """The exceeded limit, percentages included; empty: none."""
        for stage, tolerance in self._tolerated.items():
            failed, entered = self._failed[stage], self._entered[stage]
            first = f"; the first: {self._first[stage]}" if stage in self._first else ""
            if 0 <= tolerance.count < failed:
                return f"{stage}: {failed} failed records are more than toleratedFailures: {tolerance.count}{first}"
            if tolerance.percent >= 0 and failed * 100 > tolerance.percent * entered:
                share = f"{tolerance.percent:g}%"
                return f"{stage}: {failed} of {entered} records failed, more than toleratedFailures: {share}{first}"
        return ""


SAME_ERRORS = 10
"""Equal final failures at the start of a segment that stop it."""


class PlannedAttempt(Struct, frozen=True):
    """A partition about to run."""

    partition: int
    number: int
    final: bool
    """A failure of this attempt would be final."""


class Assignment(Struct, frozen=True):
    """A task for a slot."""

    attempts: tuple[PlannedAttempt, ...]
    memory: int


class Dispatch:
    """The state of one segment under way."""

    def __init__(
        self,
        policy: Policy,
        partitions: Iterable[int],
        sizes: TaskSizes,
        past: Past = NOTHING,
        *,
        preferred: Mapping[int, str] | None = None,
        tolerated: Mapping[str, Tolerance] | None = None,
        quorum: int = 0,
    ) -> None:
        """`preferred`: partition -> the slot that has decoded its input. `quorum`: the number of partitions that
        suffices; 0: all."""
        self._policy, self._sizes, self._quorum = policy, sizes, quorum
        self._starts = dict(past.starts)
        self._budgets = Budgets(policy, past)
        self._preferred = dict(preferred or {})
        self._records = FailedRecords(tolerated or {})
        self._pending: deque[int] = deque()
        self._for_slot: dict[str, deque[int]] = {}
        self._preferring = 0
        """Partitions in `_for_slot`."""
        self._delayed: list[tuple[float, int]] = []
        self._running: dict[str, deque[int]] = {}
        self._backups = Backups()
        self.twice = self._backups.twice
        """Partitions that were given a second attempt."""
        self._won: set[int] = set()
        self._committed = self._total = 0
        self.failed: dict[int, Failure] = {}
        self._errors: set[tuple[str, str, str]] = set()
        """Distinct errors among the final failures."""
        self.lost: set[str] = set()
        self.limit = policy.max_concurrency
        self._stopping = False
        self._crashes = past.crashes
        self.grows = False
        """True: more partitions may come, and failed ones do not stop the others."""
        for partition in partitions:
            self.add(partition)

    # -- queries

    @property
    def idle(self) -> bool:
        """Returns whether nothing runs."""
        return not self._running

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def stopped(self) -> bool:
        """Returns whether no further partition will be handed out. Some may still run."""
        return self._stopping or self._enough()

    @property
    def over(self) -> bool:
        """Returns whether nothing runs and nothing will, or a quorum is met. After a quorum the running attempts are
        surplus."""
        return self._enough() or (self.idle and (self.stopped or not (self.grows or self._waiting() or self._delayed)))

    def wakes_at(self) -> float | None:
        """When the next delayed partition is due, or a running partition becomes a straggler that may get a backup."""
        if not self._may_begin():
            return None
        late = self._backups.wakes_at(self._total) if self._may_double() else None
        return min((due for due in (self._delayed[0][0] if self._delayed else None, late) if due), default=None)

    def problem(self) -> tuple[FailureClass, str] | None:
        """Why the segment fails, once it is over; None: it may close."""
        exceeded = self._records.problem()
        if exceeded:
            return FailureClass.USER_ERROR, exceeded
        if self.failed and not self._enough():
            first = self.failed[min(self.failed)]
            count = f"{len(self.failed)} partition{'s' * (len(self.failed) != 1)} failed"
            return first.failure, f"{count}; the first: {first.text}"
        return None

    # -- decisions

    def add(self, partition: int) -> None:
        """A further partition, to be begun as soon as a slot is free."""
        self._total += 1
        if self._crashes.get(partition, 0) >= MAXIMUM_CRASHES:
            self._fail(crashed(partition, self._starts.get(partition, 1)))
        else:
            self._queue(partition)

    def withdraw(self, partition: int) -> bool:
        """Do not begin a partition. False: it has begun, or is over."""
        waiting = len(self._pending) + len(self._delayed)
        self._pending = deque(one for one in self._pending if one != partition)
        self._delayed = [one for one in self._delayed if one[1] != partition]
        heapq.heapify(self._delayed)
        return len(self._pending) + len(self._delayed) < waiting

    def next_task(self, slot: str, now: float) -> Assignment | None:
        """Partitions for a free slot, or None."""
        if not self._may_begin():
            return None
        self._release(now)
        partition = self._take(slot)
        if partition is None:
            return None
        memory = self._budgets.memory(partition)
        chosen = [partition, *self._more(slot, partition, memory)]
        return self._assign(slot, chosen, memory, now)

    def backup(self, slot: str, now: float) -> Assignment | None:
        """A second attempt at a straggler, for a slot that has no other work."""
        if not (self._may_begin() and self._may_double()):
            return None
        partition = self._backups.straggler(self._total, now)
        if partition is None:
            return None
        return self._assign(slot, [partition], self._budgets.memory(partition), now)

    def rivals(self, partition: int) -> list[str]:
        """Slots that run a partition which was already delivered; their tasks are to be killed."""
        if partition not in self.twice:
            return []
        return [slot for slot, running in self._running.items() if partition in running]

    def unknown(self, partition: int, attempt: int) -> None:
        """Fail a non-idempotent attempt that a dead driver left behind: it may or may not have taken effect."""
        self._fail(unknown_outcome(partition, attempt))

    def done(self, slot: str, outcome: Outcome, now: float) -> bool:
        """The slot delivered an outcome; False when the outcome is not wanted any more."""
        running = self._running.get(slot)
        if not running or outcome.partition not in running:
            return False
        self._backups.finishes(slot, now)
        self._leave(slot, outcome.partition, now)
        if outcome.partition in self._won or self._enough():
            return False
        self._won.add(outcome.partition)
        self.committed(outcome)
        return True

    def committed(self, outcome: Outcome) -> None:
        """A commit, found in the ledger or made now."""
        self._committed += 1
        self._sizes.took(outcome.seconds)
        self._stopping |= self._records.add(outcome)

    def failed_attempt(self, slot: str, failure: Failure, now: float) -> Verdict | None:
        """Queue a failed partition again, or fail it finally. Partition -1: the partition under way in the slot.

        Returns None if a rival has delivered the partition, or the slot does not run it. While a rival runs, the
        rival's end decides the consequence.
        """
        running = self._running.get(slot)
        if failure.partition < 0 and running:
            failure = msgspec.structs.replace(failure, partition=running[0])
        partition = failure.partition
        if not running or partition not in running:
            return None
        self._backups.leaves(slot)
        self._leave(slot, partition, now)
        if partition in self._won:
            return None
        self.lost.update(failure.lost)
        if self.rivals(partition):
            return Verdict(failure, final=False, spent=False)
        verdict = self._budgets.judge(failure)
        if verdict.final:
            self._fail(verdict.failure)
        else:
            heapq.heappush(self._delayed, (now + self._budgets.pause(failure), partition))
        return verdict

    def ended(self, slot: str) -> list[int]:
        """The task is over. Queue again the partitions that it never reported, and return them."""
        self._backups.leaves(slot)
        ended = self._running.pop(slot, ())
        rest = [partition for partition in ended if partition not in self._won and not self.rivals(partition)]
        for partition in reversed(rest):
            self._pending.appendleft(partition)
        return rest

    def stop(self) -> None:
        """Hand out nothing more."""
        self._stopping = True

    # -- parts of decisions

    def _assign(self, slot: str, partitions: Sequence[int], memory: int, now: float) -> Assignment:
        self._running[slot] = deque(partitions)
        self._backups.begins(slot, partitions[0], now)
        return Assignment(tuple(self._attempt(partition) for partition in partitions), memory)

    def _leave(self, slot: str, partition: int, now: float) -> None:
        """The slot is done with the partition and goes on to the next one of its task."""
        running = self._running[slot]
        running.remove(partition)
        if running:
            self._backups.begins(slot, running[0], now)

    def _may_begin(self) -> bool:
        """Returns whether another task may start. While it may not, only the end of a task changes that."""
        return not (self.stopped or (self.limit and len(self._running) >= self.limit))

    def _may_double(self) -> bool:
        return self._policy.backups and self._policy.idempotent and not self._waiting()

    def _fail(self, failure: Failure) -> None:
        self.failed[failure.partition] = failure
        self._errors.add((failure.failure, failure.error, failure.message))
        if len(self.failed) >= SAME_ERRORS and len(self._errors) == 1 and not self.grows:
            self._stopping = True

    def _attempt(self, partition: int) -> PlannedAttempt:
        number = self._starts[partition] = self._starts.get(partition, 0) + 1
        return PlannedAttempt(partition, number, self._budgets.is_last(partition))

    def _queue(self, partition: int) -> None:
        slot = self._preferred.get(partition)
        self._preferring += slot is not None
        (self._pending if slot is None else self._for_slot.setdefault(slot, deque())).append(partition)

    def _take(self, slot: str) -> int | None:
        """Prefers the slot's own partitions, then those without a preferred slot, then another slot's longest queue."""
        own = self._for_slot.get(slot)
        if own:
            self._preferring -= 1
            return own.popleft()
        if self._pending:
            return self._pending.popleft()
        if not self._preferring:
            return None
        self._preferring -= 1
        return max(self._for_slot.values(), key=len).pop()

    def _more(self, slot: str, first: int, memory: int) -> Sequence[int]:
        """Further partitions for the task of `first`; none where a partition must not wait behind another."""
        if self._quorum or not self._policy.idempotent:
            return ()
        chosen: list[int] = []
        room = self._sizes.room - self._sizes.weight(first)
        for _ in range(self._sizes.most(1 + self._waiting()) - 1):
            partition = self._take(slot)
            if partition is None:
                break
            room -= self._sizes.weight(partition)
            if room < 0 or self._budgets.memory(partition) != memory:
                self._pending.appendleft(partition)
                break
            chosen.append(partition)
        return chosen

    def _waiting(self) -> int:
        return len(self._pending) + self._preferring

    def _release(self, now: float) -> None:
        while self._delayed and self._delayed[0][0] <= now:
            self._pending.append(heapq.heappop(self._delayed)[1])

    def _enough(self) -> bool:
        return bool(self._quorum) and self._committed >= self._quorum
