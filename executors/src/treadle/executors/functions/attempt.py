"""One attempt as function calls: take the results of earlier calls, call for the rest, and report how each call ended.

begin ──> adopt: a recorded call may hold a partition ──> wait for its reports while it may be running
             │                                            (its outcomes are reused)
             v
gate ──> record ──> invoke ──┬─ throttled: back to the gate; no attempt is spent
                             ├─ answered: reports, sealed
                             ├─ accepted: wait for the reports' object
                             ├─ crashed, out of memory, timed out: the reports' object, else a failure
                             └─ lost: the object, else `worker lost`; the next attempt adopts or waits
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from treadle.primitives.errors import CorruptError, FailureClass, StoreError

from ..program import Charge, Failure, Outcome, Report, Task
from .call_log import CallBook
from .call_records import START_SECONDS, CallRecord, work_of
from .failure_classification import failure_at_end, failure_of, refuse, unreachable
from .invoker import Answer, Invoker, NotRun, Throttled
from .memory_sizes import Sizes
from .payload import Order, alive_object, decode_response, encode_request, open_reports, open_time
from .rate_limiter import Crowding, RateLimiter
from .report_poller import Mailbox


@dataclass
class CallCounts:
    """Counts of an executor's calls so far."""

    calls: int = 0
    """Calls that the provider accepted."""
    throttled: int = 0
    """Calls that the provider refused; not included in `calls`."""
    adopted: int = 0
    """Partitions whose outcome came from a call of an earlier attempt."""
    lost: int = 0
    """Calls whose answer did not arrive."""
    cold: int = 0
    """Calls that waited for a new sandbox."""


@dataclass
class Means:
    """The resources that the attempts of one executor share."""

    name: str
    """The provider, as in `treadle deploy NAME`."""
    invoker: Invoker
    gate: RateLimiter
    sizes: Sizes
    waits: float = 0.0
    """The longest known time between a call's acceptance and its start, in seconds."""
    clock: Callable[[], float] = time.time
    """Seconds since the epoch."""
    crowding: Crowding = field(default_factory=Crowding)
    mailbox: Mailbox = field(default_factory=Mailbox)
    usage: CallCounts = field(default_factory=CallCounts)


class FunctionAttempt:
    """Can be run once."""

    def __init__(self, means: Means, book: CallBook, task: Task) -> None:
        self._means, self._book, self._task = means, book, task
        self._limits = means.invoker.limits

    async def run(self) -> list[Report]:
        """Return the reports, in the order of the task's partitions.

        Raises UsageError when the function and the driver do not match or the function cannot be called, and
        CorruptError when the call records belong to another deployment.
        """
        try:
            adopted = await self._adopt()
        except StoreError as error:
            return [unreachable(self._task, error)]
        left = tuple(one for one in self._task.partitions if one.index not in adopted)
        called = await self._called(msgspec.structs.replace(self._task, partitions=left)) if left else []
        place = {one.index: at for at, one in enumerate(self._task.partitions)}
        return sorted([*adopted.values(), *called], key=lambda report: place.get(report.partition, len(place)))

    # -- results of earlier calls

    async def _adopt(self) -> dict[int, Outcome]:
        """Outcomes of recorded calls, by partition. Waits for calls that may be running."""
        await self._book.load()
        wanted = work_of(self._task)
        found: dict[int, Outcome] = {}
        seen: list[tuple[CallRecord, set[int]]] = []
        for call in self._book.under_way.at(wanted.values()):
            mine = {index for index, work in wanted.items() if index not in found and work in call.work}
            if mine:
                found |= {one.partition: one for one in await self._left_by(call) if one.partition in mine}
                seen.append((call, mine))
        for call, mine in seen:
            self._book.under_way.taken(call, [wanted[index] for index in mine])
        self._means.usage.adopted += len(found)
        return found

    async def _left_by(self, call: CallRecord) -> list[Outcome]:
        sealed = await self._wait_for(call)
        reports = open_reports(call.reports, sealed, self._book.key) if sealed is not None else []
        return [report for report in reports if isinstance(report, Outcome)]

    async def _wait_for(self, call: CallRecord) -> bytes | None:
        """The reports of a call that may be running; None when it ended without reports or never began."""
        until = call.begins
        while (sealed := await self._means.mailbox.wait(self._book.store, call.reports, until)) is None:
            alive = await self._means.mailbox.look(self._book.store, alive_object(call.reports))
            said = open_time(call.reports, alive, self._book.key) if alive is not None else None
            until = call.may_last(said)
            if until <= self._means.clock():
                return None
        return sealed

    # -- a call

    async def _called(self, task: Task) -> list[Report]:
        try:
            return await self._call(task)
        except StoreError as error:
            return [unreachable(task, error)]

    async def _call(self, task: Task) -> list[Report]:
        order = Order(
            task, self._book.reports(), self._seconds(task), self._limits.response, repeats=self._limits.repeats
        )
        request = await asyncio.to_thread(encode_request, order, self._book.key, self._limits.request)
        begun, size = time.monotonic(), self._means.sizes.of(order.task)
        try:
            call, answer = await self._invoke(order, request)
        finally:
            self._means.crowding.over(order.reports)
        elapsed = time.monotonic() - begun
        reports = _charged(await self._reports(order, call, answer), answer, elapsed, size)
        for report in reports:
            if isinstance(report, Failure) and report.failure is FailureClass.OUT_OF_MEMORY:
                self._means.sizes.ran_out(task, report.partition)
        return reports

    def _seconds(self, task: Task) -> float:
        """Maximum seconds of the call."""
        if not task.timeout:
            return self._limits.seconds
        return min(task.timeout * len(task.partitions) + START_SECONDS, self._limits.seconds)

    async def _invoke(self, order: Order, request: bytes) -> tuple[CallRecord, Answer | StoreError]:
        """Call until the provider accepts, however often it refuses. Returns the call and its answer, or the error that
        lost the answer."""
        usage, size = self._means.usage, self._means.sizes.of(order.task)
        call = self._on_record(order, 0.0)
        while True:
            made = await self._means.gate.wait()
            if (now := self._means.clock()) > call.made + START_SECONDS / 2:
                call = self._on_record(order, now)
                await self._book.record(call)
            self._means.crowding.over(order.reports)
            try:
                answer = await self._means.invoker.invoke(request, size, order.seconds)
            except Throttled as refused:
                usage.throttled += 1
                self._means.gate.throttled(made, str(refused), refused.retry_after)
                if refused.at_once:
                    self._means.crowding.refused(order.reports)
                continue
            except NotRun:
                raise
            except StoreError as lost:
                usage.calls, usage.lost = usage.calls + 1, usage.lost + 1
                return call.lost(self._means.clock(), self._means.waits), lost
            except asyncio.CancelledError:
                self._book.under_way.add([call])  # the function continues; a later attempt finds this call
                raise
            usage.calls, usage.cold = usage.calls + 1, usage.cold + answer.cold
            self._means.waits = max(self._means.waits, answer.waited)
            return call, answer

    def _on_record(self, order: Order, now: float) -> CallRecord:
        begins = now + self._limits.queued_seconds + START_SECONDS
        return CallRecord(order.reports, tuple(work_of(order.task).values()), now, begins, begins + order.seconds)

    # -- reports

    async def _reports(self, order: Order, call: CallRecord, answer: Answer | StoreError) -> list[Report]:
        if isinstance(answer, Answer) and answer.ended == "answered":
            response = decode_response(answer.response)
            refuse(response, self._means.name)
            if response.reports:
                return self._opened(order, response.sealed)
        try:
            sealed = await self._from_store(call, answer)
        except (asyncio.CancelledError, StoreError):
            self._book.under_way.add([call])  # a later attempt looks for its reports again
            raise
        if sealed is not None:
            return self._opened(order, sealed)
        if isinstance(answer, Answer):
            return [failure_at_end(order.task, answer)]
        self._book.under_way.add([call])
        return [failure_of(order.task, FailureClass.WORKER_LOST, f"its answer was lost: {answer.message}")]

    async def _from_store(self, call: CallRecord, answer: Answer | StoreError) -> bytes | None:
        if isinstance(answer, Answer) and answer.ended == "accepted":
            return await self._wait_for(call)
        return await self._means.mailbox.look(self._book.store, call.reports)

    def _opened(self, order: Order, sealed: bytes) -> list[Report]:
        try:
            return open_reports(order.reports, sealed, self._book.key)
        except CorruptError as error:
            return [failure_of(order.task, FailureClass.CORRUPT, error.message)]


def _charged(reports: list[Report], answer: Answer | StoreError, elapsed: float, size: int) -> list[Report]:
    """Add the call's charge to the first report. The duration is the provider's figure, else the function's own, else
    measured here."""
    first, *others = reports
    billed = answer.billed if isinstance(answer, Answer) else 0.0
    seconds = billed or (first.charge.seconds if first.charge else elapsed)
    return [msgspec.structs.replace(first, charge=Charge(1, seconds, size)), *others]
