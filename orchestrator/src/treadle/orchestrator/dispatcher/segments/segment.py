"""One running segment: the dispatch core between slots, ledger and store. A thin asyncio shell."""

from __future__ import annotations

import asyncio
import math
import time

import msgspec

from treadle.executors.program import Failure, Outcome, Partition, Report, Task
from treadle.primitives.errors import FailureClass, InternalError, TreadleError

from ...plan.plan import Segment
from ...run_store.run_files import Manifest
from ...scheduler.instructions import Problem
from ...scheduler.task_groups import bounds_of
from ...telemetry.hops import hop
from ..blocks.block_gc import remove_losers
from ..blocks.write_behind import Copies
from ..decisions.attempt_outcomes import Past
from ..decisions.dispatch import Assignment, Dispatch
from ..decisions.task_sizing import FIRST, TaskSizes
from ..driver_context.run_context import RunContext
from ..driver_context.slot_pool import SlotPool
from ..ledger.attempt_records import AttemptLog
from ..ledger.ledger import Committed, Copied, Expected, Failed, Started
from ..ledger.ledger_state import Account
from ..orders import NodeOrder, Progress, environment, skipped_stages
from ..tasks.arguments import program_of
from ..tasks.dataset_scope import Scope, feed_inputs, slices_of
from ..tasks.payload_budget import room
from ..tasks.summary import size_of, summarise
from .failed_segment import BlocksLost, SegmentFailed, Stopped


class SegmentRun:
    """Runs the expected partitions minus the committed ones, until the committed set is complete. Use once."""

    def __init__(
        self,
        run: RunContext,
        segment: Segment,
        scope: Scope,
        order: NodeOrder,
        account: Account,
        pool: SlotPool,
    ) -> None:
        """Raises UsageError when the segment's program cannot be made."""
        self._run, self._segment, self._account, self._limit = run, segment, account, order.limit
        self._writer, self._history = account.writer, account.history
        self._in_loop = bool(scope.iterations)
        """True: the ledger is the loop's, and the segment's end need not wait for it."""
        self.name = account.name
        self._unique = self._unique_name()
        self._inputs = feed_inputs(segment.feed, scope, run.manifest, run.loop, skipped_stages(order.bindings))
        self._mine = bounds_of(account.group, len(self._inputs), segment.group)
        """The partitions to run here."""
        env = {**environment(run.env, order.bindings), "state": {**order.bindings.get("state", {}), **scope.scalars}}
        find = run.broadcast_finder(segment.broadcasts, scope)
        self._program = program_of(segment, self.name, env, find, len(self._inputs), self._sources())
        self._pool = pool
        self._log = AttemptLog(run.site.store, run.files.prefix, self.name, self._unique)
        self._committed = account.history.committed
        self._core = self._dispatch()
        self._copies = self._copier()
        self._size = sum(size_of(outcome) for outcome in self._committed.values())
        self._retried = 0
        self._tasks = 0
        self._done = asyncio.Event()
        self._error: BaseException | None = None
        self._timer: asyncio.TimerHandle | None = None

    # -- set-up

    def _unique_name(self) -> str:
        """A name that no other run of the segment has or had. After a repair, a loop runs a segment again in the same
        epoch. A driver that died before its first write leaves no epoch."""
        ledger = self._writer.ledger
        name = f"{ledger.epoch:06d}.{self._writer.mark:08d}.{ledger.writer}"
        return name if self._account.group < 0 else f"{self._account.group}-{name}"

    def _sources(self) -> int:
        """The number of blocks that the segment reads, if a single partition reads them all; otherwise 0, as it is not
        needed."""
        return len(slices_of(self._inputs[0])) if len(self._inputs) == 1 else 0

    def _dispatch(self) -> Dispatch:
        quorum = self._quorum()
        frozen = self._history.frozen if quorum else set()
        missing = [index for index in self._mine if index not in self._committed and (not frozen or index in frozen)]
        unknown = set() if self._segment.policy.idempotent else self._history.cut_off.intersection(missing)
        core = Dispatch(
            self._segment.policy,
            [partition for partition in missing if partition not in unknown],
            self._sizes(),
            self._past(),
            preferred=self._preferred(missing),
            tolerated=self._segment.tolerated,
            quorum=quorum,
        )
        for outcome in self._committed.values():
            core.committed(outcome)
        for partition in sorted(unknown):
            core.unknown(partition, self._history.starts.get(partition, 1))
        if self._limit:
            core.limit = self._limit
        return core

    def _sizes(self, first: int = FIRST) -> TaskSizes:
        can = self._pool.executor.capabilities
        space, weights = room(can.payload_limit, self._program, self._inputs, self._mine)
        return TaskSizes(
            len(self._pool.slots),
            pace=self._account.pace,
            time_limit=can.time_limit,
            timeout=self._segment.policy.timeout,
            room=space,
            weights=weights,
            first=first,
        )

    def _past(self) -> Past:
        known = self._history
        return Past(known.starts, known.spent, known.losses, known.crashes)

    def _copier(self) -> Copies | None:
        return Copies.of(self._segment, self._run.blocks, self._committed.values())

    def _quorum(self) -> int:
        share = self._segment.quorum
        return math.ceil(share * len(self._inputs) / 100) if share < 100 else 0

    def _preferred(self, partitions: list[int]) -> dict[int, str]:
        """Partition -> the slot that has already decoded its input."""
        found = {}
        for partition in partitions:
            first = next(iter(slices_of(self._inputs[partition])), None)
            slot = self._run.reader(first.name) if first else None
            if slot is not None:
                found[partition] = slot
        return found

    # -- the run

    async def run(self) -> Manifest:
        """Returns the whole committed set. Raises SegmentFailed, BlocksLost, Fenced; Stopped after `drain`.

        If it is cancelled, running attempts are killed.
        """
        if self._history.expected is None:
            self._account.enter(Expected(self.name, len(self._mine), time.time()))
        try:
            try:
                if not self._core.over:
                    with hop(self._run.id, f"tasks {self.name}"):
                        await self._drive()
            finally:
                await self._log.close()
            with hop(self._run.id, f"commit {self.name}"):
                await self._judge()
            await self._copy_rest()
        finally:
            if self._copies:
                self._copies.stop()
        return self._manifest()

    async def _judge(self) -> None:
        """Raises the error that keeps the segment from closing, if there is one."""
        if self._error is not None:
            raise self._error
        if not self._in_loop or self._core.problem():
            await self._writer.synced()
        if self._core.lost:
            raise BlocksLost(self._core.lost | await asyncio.to_thread(self._lost_with_them))
        problem = self._core.problem()
        if problem is not None:
            raise SegmentFailed(self._problem(*problem))
        if not self._complete():
            raise Stopped

    def drain(self) -> None:
        """Start no more attempts. Running attempts may end and commit."""
        self._core.stop()
        self._settle()

    def progress(self) -> Progress:
        return Progress(
            self.name,
            len(self._mine),
            len(self._committed),
            len(self._core.failed),
            self._retried,
            self._core.running,
            self._size,
            self._account.group,
            len(self._inputs) if self._account.group >= 0 else 0,
        )

    def stop_with(self, error: BaseException) -> None:
        """Commit nothing more, because the ledger broke or another dispatcher took over."""
        self._error = self._error or error
        self._core.stop()
        self._done.set()

    async def _drive(self) -> None:
        deadline = self._deadline()
        try:
            self._pool.join(self, f"{self._run.id}/{self.name}")
            async with asyncio.timeout_at(deadline):
                await self._done.wait()
        except TimeoutError:
            text = f"{self._stage}: deadline of {self._segment.policy.deadline:g} s is over"
            self._error = SegmentFailed(Problem(FailureClass.TIMED_OUT, text, node=self._segment.id))
        finally:
            if self._timer:
                self._timer.cancel()
            await self._pool.leave(self)
            await self._remove_losers()

    async def _remove_losers(self) -> None:
        """Remove the blocks of losing attempts, once the winners are on record. Before that, a successor may have other
        winners.

        Raises Fenced, StoreError.
        """
        won = {partition: self._committed[partition] for partition in self._core.twice & self._committed.keys()}
        if won and self._error is None:
            await self._writer.synced()
            await asyncio.to_thread(remove_losers, self._run.files, self._run.site.host, self.name, won)

    def _deadline(self) -> float | None:
        if not self._segment.policy.deadline:
            return None
        opened = self._history.opened or time.time()
        return asyncio.get_running_loop().time() + opened + self._segment.policy.deadline - time.time()

    # -- called by the pool

    def together(self) -> int:
        return 1

    def offer(self, slot: str) -> Task | None:
        return self._assigned(self._core.next_task(slot, time.monotonic()))

    def backup(self, slot: str) -> Task | None:
        return self._assigned(self._core.backup(slot, time.monotonic()))

    async def ready(self) -> None:
        """Wait until the attempts are on record, if a dead driver must be able to count them."""
        if self._writer.ledger.epoch > 1 or not self._segment.policy.idempotent:
            await self._writer.synced()

    def report(self, slot: str, report: Report) -> None:
        if self._error is not None:
            return
        if isinstance(report, Outcome):
            self._outcome(slot, msgspec.structs.replace(report, slot=report.slot or self._run.site.slot_name(slot)))
        else:
            self._failure(slot, report)
        self._settle()

    def ended(self, slot: str, error: BaseException | None) -> None:
        rest = self._core.ended(slot)
        if isinstance(error, TreadleError) and not isinstance(error, InternalError):
            self.stop_with(SegmentFailed.by(error, self._segment.id))
        elif error is not None and not isinstance(error, asyncio.CancelledError):
            text = f"slot {slot} failed with {rest}: {type(error).__name__}: {error}"
            self.stop_with(SegmentFailed(Problem(FailureClass.INTERNAL, text, node=self._segment.id)))
        self._settle()

    def refuse(self, error: TreadleError) -> None:
        self.stop_with(SegmentFailed.by(error, self._segment.id))

    # -- parts

    def _assigned(self, assignment: Assignment | None) -> Task | None:
        if assignment is None:
            self._set_timer()
            return None
        self._tasks += 1
        self._started(assignment)
        return self._task(assignment)

    def _started(self, assignment: Assignment) -> None:
        self._account.enter(Started(self.name, {attempt.partition: attempt.number for attempt in assignment.attempts}))

    def _task(self, assignment: Assignment) -> Task:
        partitions = tuple(
            Partition(attempt.partition, self._inputs[attempt.partition], attempt.number, attempt.final)
            for attempt in assignment.attempts
        )
        name = f"{self.name}#{self._unique}.{self._tasks}"
        return Task(name, self._run.job, self._program, partitions, self._segment.policy.timeout, assignment.memory)

    def _outcome(self, slot: str, outcome: Outcome) -> None:
        self._log.add(outcome, slot)
        if not self._core.done(slot, outcome, time.monotonic()):
            return
        self._read_by(slot, outcome.partition)
        self._commit(outcome)
        self._pool.abort(self, self._core.rivals(outcome.partition))

    def _read_by(self, slot: str, partition: int) -> None:
        for one in slices_of(self._inputs[partition]):
            if not one.inline:
                self._run.read_by(one.name, slot)

    def _commit(self, *outcomes: Outcome) -> None:
        """Commit all of the outcomes or none."""
        kept = [msgspec.structs.replace(outcome, log=b"") if outcome.log else outcome for outcome in outcomes]
        self._account.enter(*(Committed(self.name, outcome) for outcome in kept))
        self._size += sum(map(size_of, kept))
        for outcome in kept:
            self._run.tell_committed(self._segment, outcome)
            self._run.reclaimer.note(self._segment, self.name, outcome)
            if self._copies:
                self._copies.add(outcome)

    def _failure(self, slot: str, failure: Failure) -> None:
        verdict = self._core.failed_attempt(slot, failure, time.monotonic())
        if verdict is None:
            return
        self._retried += not verdict.final
        self._log.add(verdict.failure, slot, verdict.final)
        known = verdict.failure
        self._run.tell_failed(self._segment, known, final=verdict.final)
        self._account.enter(
            Failed(
                self.name,
                known.partition,
                known.attempt,
                str(known.failure),
                known.message[:1000],
                verdict.final,
                verdict.spent,
            )
        )
        if known.lost:
            self._core.stop()
            self._note_hosts(known)

    def _note_hosts(self, failure: Failure) -> None:
        """Report the hosts that were lost with blocks. Later plans count them."""
        if self._run.site.hosts is not None:
            self._run.site.hosts.took(failure.lost, slices_of(self._inputs[failure.partition]))

    def _settle(self) -> None:
        if self._core.over:
            self._done.set()
        else:
            self._set_timer()

    def _set_timer(self) -> None:
        due = self._core.wakes_at()
        if due is not None:
            if self._timer:
                self._timer.cancel()
            wait = max(0.0, due - time.monotonic())
            self._timer = asyncio.get_running_loop().call_later(wait, self._pool.kick)

    def _problem(self, failure: FailureClass, message: str) -> Problem:
        where = f"attempts/{self.name}"
        named = any(message.startswith(f"{stage}: ") for stage in self._segment.stages)
        text = message if named else f"{self._stage}: {message}"
        return Problem(str(failure), text, self._segment.id, where)

    @property
    def _stage(self) -> str:
        """The stage to name in errors: the segment's last, or the stage whose input alone it reads (`total.in`)."""
        return self._segment.stages[-1] if self._segment.stages else self._segment.id.partition(".")[0]

    def _lost_with_them(self) -> set[str]:
        """Further lost blocks that this segment has yet to read. Blocks are seldom lost alone, and are best remade
        together."""
        missing = (index for index in self._mine if index not in self._committed)
        return self._run.blocks.lost(one for index in missing for one in slices_of(self._inputs[index]))

    def _complete(self) -> bool:
        return len(self._committed) >= (self._quorum() or len(self._mine))

    async def _copy_rest(self) -> None:
        """Copy every block that is on its host alone, and record the copies before any consumer starts."""
        if self._copies is None:
            return
        record = Copied.of(self.name, await self._copies.finished())
        if record.partitions:
            self._account.enter(record)
            await self._writer.synced()

    def _manifest(self) -> Manifest:
        outcomes = tuple(self._committed[partition] for partition in sorted(self._committed))
        summary = summarise(self._segment, outcomes, len(self._mine))
        return Manifest(self.name, len(self._mine), outcomes, summary)
