"""The work of a session's activity: run the calls that clients append to the call log, until the session ends.

One ledger holds the commits of all functions' segments. A driver that takes over reads the call log and the ledger from
their beginning: it runs the called partitions minus the committed ones. A client that is gone makes no difference;
without calls for `IDLE` seconds the driver ends the session itself.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial

from msgspec.structs import replace

from treadle.executors.program import Outcome
from treadle.primitives.asyncio_tasks import spawn
from treadle.primitives.encoding.references import BlockRef
from treadle.primitives.errors import FailureClass, StoreError, TreadleError, UsageError
from treadle.primitives.stores.input_files import is_local

from ...plan.plan import Segment
from ...run_store.call_log import VALUES, CallLog, CallPlace, CallRecord, FunctionAdded, NoMoreCalls, ValueAdded
from ...run_store.chain_watch import ChainWatch
from ...run_store.run_files import Manifest
from ...scheduler.instructions import Problem, Summary
from ..decisions.open_calls import (
    BeginCall,
    DropResult,
    ExpectCalls,
    FailCall,
    OpenCalls,
    OpenFunction,
    Step,
    TakeValue,
    WithdrawCall,
)
from ..driver_context.run_context import RunContext
from ..ledger.group_commit import LedgerWriter
from ..ledger.ledger import CANCELLED, Failed, Ledger
from ..ledger.ledger_state import Account, ChainHistory, SegmentHistory
from ..orders import NodeOrder, Progress
from .execute_segment import Desk, prepare, writing
from .failed_segment import BlocksLost, SegmentFailed, Stopped
from .open_segment import OpenRun, open_segment
from .segment import SegmentRun

_log = logging.getLogger(__name__)
IDLE = 3600.0
"""Seconds without a call and without work after which a session ends."""
_BUSY, _QUIET, _REMOTE = 0.001, 0.05, 0.5
"""Seconds between two looks at the call log: soon after a call unless new ones are announced, else, on a store over the
network."""
_SETTLED = 1.0
"""Seconds after which a value that is still needed is copied to the store."""
_SOON = 2.0
"""Seconds after a call during which another one is likely."""


async def run_session(run: RunContext, node: Segment, order: NodeOrder, desk: Desk) -> Summary:
    """Run calls until the session has ended, or find it ended.

    Raises Stopped when it is drained; Fenced, StoreError, CorruptError; SegmentFailed when arguments are lost.
    """
    known = await asyncio.to_thread(run.files.closing, node.id)
    if known is not None:
        return known.summary
    prefix = run.files.segment(node.id)
    ledger = await asyncio.to_thread(Ledger, run.site.store, prefix, run.files.key, order.resumption)
    async with writing(ledger) as (writer, watch):
        accounts = {name: Account(name, writer, history) for name, history in ChainHistory(ledger.records).items()}
        summary, spared = None, set[str]()
        while summary is None:
            session = _SessionRun(run, node, order, writer, watch, accounts)
            with desk.showing(session):
                try:
                    summary = await session.run()
                except BlocksLost as lost:
                    _take_back(accounts, tuple(session.gone(lost.blocks, spared)), node.id)
        await writer.synced()
    await asyncio.to_thread(run.files.create_manifest, Manifest(node.id, summary.partitions, (), summary), 1)
    return summary


def _take_back(accounts: Mapping[str, Account], blocks: tuple[str, ...], node: str) -> None:
    """Take back the commits of lost blocks. Raises SegmentFailed for blocks that no call made."""
    taken = [account.take_back(blocks) for account in accounts.values()]
    if blocks and not any(taken):
        text = f"the arguments of calls are gone: {blocks[0]}; start a new session"
        raise SegmentFailed(Problem(FailureClass.UNREACHABLE, text, node))


def _with_copies(records: Sequence[CallRecord]) -> Iterator[CallRecord]:
    """The records, with the copies of values that are known from later ones: a value may be lost on this host."""
    values = [one.block for one in records if isinstance(one, ValueAdded)]
    copies = {block.name: block for block in values if "store" in block.locations}
    for one in records:
        yield replace(one, block=copies.get(one.block.name, one.block)) if isinstance(one, ValueAdded) else one


class _SessionRun:
    """Carries out the steps of OpenCalls. Use once."""

    def __init__(
        self,
        run: RunContext,
        node: Segment,
        order: NodeOrder,
        writer: LedgerWriter,
        watch: Callable[[SegmentRun], None],
        accounts: dict[str, Account],
    ) -> None:
        self._run, self._node, self._order, self._writer, self._watch = run, node, order, writer, watch
        self._accounts = accounts
        self._log = CallLog(run.files, f"driver-{secrets.token_hex(4)}")
        self._local = is_local(run.site.store.url)
        self._loop = asyncio.get_running_loop()
        self._new_calls = ChainWatch(self._log.folder, partial(self._loop.add_reader, callback=self._announced))
        self._calls = OpenCalls()
        self._segments: dict[str, OpenRun] = {}
        self._broken: dict[str, Problem] = {}
        """Segments that cannot run, for example because their executor does not start."""
        self._tasks: dict[asyncio.Task[None], str] = {}
        """The running segments, with their names."""
        self._others: set[asyncio.Task[None]] = set()
        """Copies and removals of blocks."""
        self._copied: list[ValueAdded] = []
        """Values whose copy is to be written to the call log."""
        self._todo: deque[Step] = deque()
        self._taking = self._draining = False
        self._changed = asyncio.Event()
        self._last_call = time.monotonic()

    # -- shown by the desk

    def progress(self) -> Progress:
        inner = [segment.progress() for segment in self._segments.values()]
        return Progress(
            self._node.id,
            self._calls.expected,
            sum(one.committed for one in inner),
            self._calls.failed,
            sum(one.retried for one in inner),
            sum(one.running for one in inner),
            sum(one.size for one in inner),
        )

    def drain(self) -> None:
        """Start no more attempts. Running attempts may end and commit."""
        self._draining = True
        for segment in self._segments.values():
            segment.drain()
        self._changed.set()

    # -- the run

    async def run(self) -> Summary:
        """Returns once every call has ended. Raises the errors of `run_session`, and BlocksLost."""
        try:
            while not self._calls.over:
                await self._read()
                self._check()
                if not self._calls.over:
                    await self._pause()
            for segment in self._segments.values():
                segment.close()
            await asyncio.gather(*self._tasks)
        finally:
            self._new_calls.close(self._loop.remove_reader)
            tasks = [*self._tasks, *self._others]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return Summary(partitions=self._calls.expected, size=self.progress().size)

    async def _read(self) -> None:
        """Read the call log on, and take the steps that follow."""
        records: list[CallRecord] = []
        if self._copied:
            copied, self._copied = self._copied, []
            records = await asyncio.to_thread(self._log.write, copied)
        elif self._log.may_have_more():  # on this host the system has it in memory, and a thread would take longer
            records = self._log.read() if self._local else await asyncio.to_thread(self._log.read)
        elif self._calls.idle and time.monotonic() - self._last_call > IDLE:
            records = await asyncio.to_thread(self._log.write, [NoMoreCalls()])
        for record in _with_copies(records):
            self._last_call = time.monotonic()
            for step in self._calls.add(record):
                if isinstance(step, OpenFunction):
                    await self._open(step.segment, step.function)
                else:
                    self._take([step])

    def _check(self) -> None:
        """Raise the error of a segment, and Stopped once all are drained. A segment that cannot run fails its calls."""
        for task in [task for task in self._tasks if task.done()]:
            try:
                with suppress(Stopped):
                    task.result()
            except SegmentFailed as failed:
                self._break(self._tasks.pop(task), failed.problem)
        if self._draining and all(task.done() for task in self._tasks):
            raise Stopped

    def _break(self, name: str, problem: Problem) -> None:
        self._broken[name] = problem
        del self._segments[name]
        for place in self._calls.left(name):
            self._fail(place, problem.failure, problem.message)

    async def _pause(self) -> None:
        """Until the next look at the call log. An end of a call comes sooner."""
        self._changed.clear()
        timer = self._loop.call_later(self._interval(), self._changed.set)
        await self._changed.wait()
        timer.cancel()

    def _interval(self) -> float:
        if not self._local:
            return _REMOTE
        if self._new_calls.announces() or time.monotonic() - self._last_call > _SOON:
            return _QUIET
        return _BUSY

    def _announced(self) -> None:
        if self._new_calls.take():
            self._changed.set()

    # -- steps

    async def _open(self, name: str, function: FunctionAdded) -> None:
        account = self._accounts.setdefault(name, Account(name, self._writer, SegmentHistory()))
        try:
            pool = await self._run.site.pools.ready(function.executor or self._node.policy.executor)
            segment = open_segment(name, function, self._node.policy.executor, pool.executor.capabilities)
            found = await prepare(self._run, segment, self._run.scope, self._order, account)
        except UsageError as error:
            self._broken[name] = SegmentFailed.by(error, name).problem
            return
        except SegmentFailed as failed:
            self._broken[name] = failed.problem
            return
        assert isinstance(found, OpenRun)
        found.settled, found.copied = partial(self._settled, name), partial(self._copied_result, name)
        if segment.put == "store":
            self._calls.far.add(name)
        self._watch(found)
        self._segments[name] = found
        task = spawn(found.run_open())
        self._tasks[task] = name
        task.add_done_callback(lambda _: self._changed.set())
        if self._draining:
            found.drain()

    def _settled(self, name: str, partition: int, outcome: Outcome | None) -> None:
        block = outcome.block if outcome else None
        self._take(self._calls.ended(CallPlace(name, partition), block))

    def _copied_result(self, name: str, partition: int, block: BlockRef) -> None:
        self._take(self._calls.copied(CallPlace(name, partition), block))

    def _take(self, steps: Iterable[Step]) -> None:
        """Take the steps and their consequences in order. Chains of calls are long, so there is no recursion."""
        self._todo.extend(steps)
        if self._taking:
            return
        self._taking = True
        try:
            while self._todo:
                self._do(self._todo.popleft())
        finally:
            self._taking = False
        if self._calls.over:
            self._changed.set()

    def _do(self, step: Step) -> None:
        match step:
            case ExpectCalls(name, partitions) if name in self._segments:
                self._segments[name].expect(partitions)
            case BeginCall(place) | FailCall(place) if self._failed_before(place):
                self._take(self._calls.ended(place, None))
            case BeginCall(place, given) if place.segment in self._segments:
                self._segments[place.segment].begin(place.partition, given)
            case BeginCall(place):
                problem = self._broken[place.segment]
                self._fail(place, problem.failure, problem.message)
            case FailCall(place, needed):
                self._fail(place, *self._failure_of(needed))
            case TakeValue(place, value):
                self._take(self._calls.ended(place, self._found(place, value)))
            case DropResult(block) if "inline" not in block.locations:
                self._do_beside(self._drop(block))
            case WithdrawCall(place) if place.segment not in self._segments or self._withdrawn(place):
                self._fail(place, CANCELLED, "it was cancelled before it began")

    def _do_beside(self, work: Coroutine[None, None, None]) -> None:
        task = spawn(work)
        self._others.add(task)
        task.add_done_callback(self._others.discard)

    async def _drop(self, block: BlockRef) -> None:
        """Remove a result that nothing needs any more, once that is on record."""
        await self._writer.synced()
        try:
            await asyncio.to_thread(self._run.blocks.remove, block)
        except StoreError as error:
            _log.warning("a result that nothing needs stays: %s", error)

    def gone(self, blocks: Iterable[str], spared: set[str]) -> Iterator[str]:
        """Return the lost blocks that another try would not find. `spared`: the blocks that were spared before.

        A block with a copy in the store is spared once: the attempt may have begun before the copy was made. A value
        without a copy is not among them: the next try finds it lost, and fails its calls alone.
        """
        for block in blocks:
            value = self._calls.value(block)
            known = value or self._result(block)
            if known is not None and "store" in known.locations and len(known.locations) > 1 and block not in spared:
                spared.add(block)
            elif value is None or "store" in value.locations:
                yield block

    def _result(self, block: str) -> BlockRef | None:
        outcomes = (one for account in self._accounts.values() for one in account.history.committed.values())
        return next((one.block for one in outcomes if one.block is not None and one.block.name == block), None)

    def _found(self, place: CallPlace, value: ValueAdded) -> BlockRef | None:
        """The block of a value. None: it is lost. If only this host has it, it is copied to the store in time."""
        block = value.block
        if not {"store", "inline"} & set(block.locations):
            if self._run.blocks.lost([block.slice(0)]):
                return None
            self._do_beside(self._copy(place, value))
        return block

    async def _copy(self, place: CallPlace, value: ValueAdded) -> None:
        await asyncio.sleep(_SETTLED)
        if not self._calls.needs(place):
            return
        try:
            block = await asyncio.to_thread(self._run.blocks.copy_to_store, value.block)
        except TreadleError as error:
            _log.warning("not copied, a restart of the host would lose it: %s", error)
        else:
            self._copied.append(ValueAdded(value.key, block, ""))
            self._changed.set()

    def _failed_before(self, place: CallPlace) -> bool:
        """Whether the record of a partition says that it failed for good. It is over, also for a later driver."""
        return place.partition in self._accounts[place.segment].history.failed

    def _failure_of(self, needed: CallPlace) -> tuple[str, str]:
        """(failure, message) for calls that need a failed call. The failure is the same, so that the client raises the
        same exception."""
        if needed.segment == VALUES:
            return FailureClass.UNREACHABLE, "a value among its arguments was lost with the shared memory of its host"
        failure = self._accounts[needed.segment].history.failed[needed.partition]
        text = f"it needs the result of {needed.segment}/{needed.partition}, which failed"
        return FailureClass.USER_ERROR if failure == CANCELLED else failure, text

    def _withdrawn(self, place: CallPlace) -> bool:
        """Clients have seen the begin of a call, also one that a dead driver began. It is not withdrawn any more."""
        if place.partition in self._accounts[place.segment].history.starts:
            return False
        return self._segments[place.segment].withdraw(place.partition)

    def _fail(self, place: CallPlace, failure: str, message: str) -> None:
        """Record the failure of a partition that does not run."""
        record = Failed(place.segment, place.partition, 0, str(failure), message, final=True, spent=True)
        self._accounts[place.segment].enter(record)
        self._writer.hurry()
        self._take(self._calls.ended(place, None))
