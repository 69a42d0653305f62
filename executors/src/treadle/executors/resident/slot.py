"""A slot that has one member at a time, and tasks done by it."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Callable

from treadle.primitives import sealing
from treadle.primitives.asyncio_tasks import spawn
from treadle.primitives.errors import CorruptError, FailureClass, MissingError, StoreError, TreadleError

from ..functions.attempt import Means
from ..functions.call_records import START_SECONDS, Names
from ..functions.failure_classification import failure_at_end, failure_of, refuse
from ..functions.in_flight import Underway
from ..functions.payload import Adopt, Order, Response, encode_content, encode_request, take_reports
from ..program import Failure, Report, Task
from .coordinator_host import Gone, Hub
from .lifetime import HANDOVER, OVER, Holdings, Resting, Span, choose, needs, rest
from .long_call import MemberCall

_MESSAGE = 512 << 10
"""Bytes of an order or of reports that travel in a message; longer ones go through the store."""
_LEAVING = 3.0
"""Seconds in which members that are dismissed may leave in good order."""
_TRIES = 3
"""Members that may leave just as a task comes."""
_POLL = 0.2
"""Seconds between looks at a member that works."""


class MemberSlot:
    """See `Slot`."""

    def __init__(self, name: str, means: Means, hub: Hub, span: Span, key: bytes) -> None:
        """`key`: the deployment key."""
        self.name = name
        self._means, self._hub, self._span, self._key = means, hub, span, key
        self._member: MemberCall | None = None
        self._turn = asyncio.Lock()
        self._underway = Underway(name)
        self._keeper: asyncio.Task[None] | None = None
        self._leaving: set[asyncio.Task[None]] = set()

    @property
    def task(self) -> str:
        """See `Slot.task`."""
        return self._underway.task

    async def run(self, task: Task, report: Callable[[Report], None]) -> None:
        """See `Slot.run`. Raises UsageError when who deployed the function must act, or open the coordinator's port."""
        await self._underway.run(task, self._run, report)

    async def stop(self) -> None:
        """Give up the attempt under way, which is reported as lost, and dismiss the member."""
        await self._underway.stop()
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait({self._keeper})
        self._dismiss(self._member)
        self._keeper = None
        leaving = list(self._leaving)
        if leaving:
            await asyncio.wait(leaving, timeout=_LEAVING)
        for one in leaving:
            one.cancel()
        await asyncio.gather(*leaving, return_exceptions=True)

    # -- room for others

    @property
    def resting(self) -> Resting | None:
        """Its member, when that has no task and none comes."""
        member = self._member
        if member is None or self._turn.locked() or self._underway.busy or member.standing is None:
            return None
        return Resting(self.name, member.used, bool(member.holds))

    @property
    def has_member(self) -> bool:
        return self._member is not None

    @property
    def leaving(self) -> int:
        """Members that were dismissed, and have not left."""
        return len(self._leaving)

    async def give_way(self, heir: MemberSlot | None) -> None:
        """Dismiss the member, once that of `heir` has taken its blocks; if it cannot, the member stays."""
        async with self._turn:
            member = self._member
            if member is not None and (heir is None or await heir.take_over(member.holds)):
                self._dismiss(member)

    async def take_over(self, holds: Holdings) -> bool:
        """Have the member pull and serve these blocks too."""
        async with self._turn:
            member = self._member
            if member is None or member.standing is None:
                return False
            used = member.used
            with contextlib.suppress(TimeoutError, TreadleError, Gone):
                async with asyncio.timeout(HANDOVER):
                    await member.ask(encode_content(self._hub.session, Adopt(holds.sets()), self._hub.key))
                member.holds.add(holds)
                member.used = used  # nothing has used it
                return True
            return False

    # -- an attempt

    async def _run(self, task: Task) -> list[Report]:
        async with self._turn:
            try:
                await self._hub.start()
                self._hub.know(task.job.run, task.job.store)
                return await self._done(task)
            except StoreError as error:
                failure = FailureClass.THROTTLED if error.throttled else FailureClass.UNREACHABLE
                return [failure_of(task, failure, error.message)]
            finally:
                self._rest()

    async def _done(self, task: Task) -> list[Report]:
        key = sealing.run_key(self._key, task.job.run)
        folder = Names.of(task.job.run, task.program.segment, self.name).segment
        order = Order(task, f"{folder}/members/{secrets.token_hex(12)}", self._seconds(task), _MESSAGE)
        body = await asyncio.to_thread(encode_request, order, key, _MESSAGE)
        for _ in range(_TRIES):
            member = await self._ready(task)
            try:
                response = await member.ask(body)
            except Gone as gone:
                failure = await self._loss(task, member) if gone.begun else None
                self._dismiss(member)
                if failure is not None:
                    return [failure]
            else:
                found = await asyncio.to_thread(_reports, order, response, key, self._means.name)
                self._note(member, task, found)
                return found
        return [failure_of(task, FailureClass.WORKER_LOST, OVER)]

    def _seconds(self, task: Task) -> float:
        """What the task may take of its member's time."""
        if not task.timeout:
            return self._span.work
        return min(task.timeout * len(task.partitions) + START_SECONDS, self._span.work)

    def _note(self, member: MemberCall, task: Task, reports: list[Report]) -> None:
        member.holds.note(task, reports)
        for report in reports:
            if isinstance(report, Failure) and report.failure is FailureClass.OUT_OF_MEMORY:
                self._means.sizes.ran_out(task, report.partition)

    async def _loss(self, task: Task, member: MemberCall) -> Failure:
        """How the member ended tells what that means; the provider's time limit is no limit of the task's."""
        answer = await member.end()
        if answer is None or answer.ended in ("answered", "accepted", "timed out"):
            return failure_of(task, FailureClass.WORKER_LOST, answer.how if answer and answer.how else "it was lost")
        failure = failure_at_end(task, answer)
        if failure.failure is FailureClass.OUT_OF_MEMORY:
            self._means.sizes.ran_out(task, failure.partition)
        return failure

    # -- its member

    async def _ready(self, task: Task) -> MemberCall:
        size = self._means.sizes.of(task)
        member = self._member
        standing = member.standing if member is not None else None
        match choose(standing, self._span, size, needs(task, self._span), time.monotonic()):
            case "use" if member is not None:
                return member
            case "replace" if member is not None:
                return await self._replace(member, size)
        self._dismiss(member)  # what is left of it: a second run of its call, say
        self._member = self._called(size)
        return self._member

    def _called(self, size: int) -> MemberCall:
        return MemberCall(self._means, self._hub, self._span, size)

    async def _replace(self, old: MemberCall, size: int) -> MemberCall:
        """Another member takes its place, and its blocks as far as time allows; what is lost is made again."""
        new = self._member = self._called(size)
        if old.holds:
            body = encode_content(self._hub.session, Adopt(old.holds.sets()), self._hub.key)
            with contextlib.suppress(Gone, TimeoutError, StoreError):
                async with asyncio.timeout(self._span.total - self._span.work):
                    await new.ask(body)
                    new.holds = old.holds
        self._dismiss(old)
        return new

    def _dismiss(self, member: MemberCall | None) -> None:
        """Its call ends in a moment; nobody waits for it but `stop`."""
        if member is self._member:
            self._member = None
        if member is not None:
            leaving = spawn(member.leave(), name=f"leaving of {member.name}")
            self._leaving.add(leaving)
            leaving.add_done_callback(self._leaving.discard)

    def _rest(self) -> None:
        """From now on the member has no task."""
        if self._member is not None and self._keeper is None and not self._underway.stopped:
            self._keeper = spawn(self._keep(), name=f"keeper of {self.name}")

    async def _keep(self) -> None:
        """Between tasks: dismiss a member that was idle for long, replace one with blocks whose time is over."""
        try:
            while (member := self._member) is not None:
                standing = member.standing
                now = time.monotonic()
                if standing is None:
                    return
                holds = bool(member.holds)
                what, again = rest(standing, self._span, member.used, self._hub.meeting.idle, holds, now)
                if what == "keep" or self._turn.locked():
                    await asyncio.sleep(max(again - now, _POLL))
                    continue
                async with self._turn:
                    await self._relieve(member, standing.size, what == "replace")
        finally:
            self._keeper = None

    async def _relieve(self, member: MemberCall, size: int, replace: bool) -> None:
        if replace:
            with contextlib.suppress(TreadleError):
                used = member.used
                (await self._replace(member, size)).used = used  # nobody has used it
        else:
            self._dismiss(member)


def _reports(order: Order, response: Response, key: bytes, provider: str) -> list[Report]:
    """Raises UsageError when function and driver do not fit together, StoreError when the reports cannot be had."""
    refuse(response, provider)
    try:
        return take_reports(order, response, key)
    except (CorruptError, MissingError) as error:
        return [failure_of(order.task, FailureClass.CORRUPT, error.message)]
