"""A slot that has one member at a time, which runs the slot's tasks."""

from __future__ import annotations

import asyncio
import contextlib
import random
import secrets
import time
from collections.abc import Callable

from treadle.primitives import sealing
from treadle.primitives.asyncio_tasks import spawn
from treadle.primitives.channels.gang import Gang
from treadle.primitives.errors import CorruptError, FailureClass, MissingError, StoreError, TreadleError

from ..functions.attempt import Means
from ..functions.call_records import START_SECONDS, ObjectNames
from ..functions.failure_classification import failure_at_end, failure_of, refuse
from ..functions.in_flight import Underway
from ..functions.payload import Adopt, Order, Response, encode_content, encode_request, take_reports
from ..program import Failure, Report, Task
from . import lifetime
from .coordinator_host import Hub, MemberGone
from .lifetime import HANDOVER, OVER, CallWindow, Holdings, Resting, choose, needs, rest
from .long_call import MemberCall

_MESSAGE = 512 << 10
"""Maximum bytes of an order or of reports in a message; longer ones go through the store."""
_LEAVING = 3.0
"""Seconds that dismissed members have to leave."""
_TRIES = 3
"""Maximum tries for a task when members leave just as it arrives."""
_POLL = 0.2
"""Minimum seconds between checks of a working member."""


class MemberSlot:
    """See `Slot`."""

    def __init__(self, name: str, means: Means, hub: Hub, span: CallWindow, key: bytes) -> None:
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
        """See `Slot.run`. Raises UsageError when the deployment must be corrected or the coordinator's port opened."""
        await self._underway.run(task, self._run, report)

    async def stop(self) -> None:
        """Give up the running attempt, which is reported as lost, and dismiss the member."""
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

    # -- making room for calls

    @property
    def resting(self) -> Resting | None:
        """Its member, if it is idle and no task is about to start."""
        member = self._member
        if member is None or self._turn.locked() or self._underway.busy or member.standing is None:
            return None
        return Resting(self.name, member.used, bool(member.holds))

    @property
    def has_member(self) -> bool:
        return self._member is not None

    @property
    def leaving(self) -> int:
        """Number of members that were dismissed and have not left yet."""
        return len(self._leaving)

    async def give_way(self, heir: MemberSlot | None) -> None:
        """Dismiss the member once the member of `heir` has taken over its blocks. If that fails, the member stays."""
        async with self._turn:
            member = self._member
            if member is not None and (heir is None or await heir.take_over(member.holds)):
                self._dismiss(member)

    async def take_over(self, holds: Holdings) -> bool:
        """Make the member pull and serve these blocks too."""
        async with self._turn:
            member = self._member
            if member is None or member.standing is None:
                return False
            used = member.used
            with contextlib.suppress(TimeoutError, TreadleError, MemberGone):
                async with asyncio.timeout(HANDOVER):
                    await member.ask(encode_content(self._hub.session, Adopt(holds.sets()), self._hub.key))
                member.holds.add(holds)
                member.used = used  # adopting blocks is not a task
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
        folder = ObjectNames.of(task.job.run, task.program.segment, self.name).segment
        order = Order(task, f"{folder}/members/{secrets.token_hex(12)}", self._seconds(task), _MESSAGE)
        body = await asyncio.to_thread(encode_request, order, key, _MESSAGE)
        for _ in range(1 if task.gang else _TRIES):
            member = await self._ready(task)
            if task.gang is not None and (failure := await self._gather(task, task.gang, member)):
                return [failure]
            try:
                response = await member.ask(body)
            except MemberGone as gone:
                failure = await self._loss(task, member) if gone.begun else None
                self._dismiss(member)
                if failure is not None:
                    return [failure]
            else:
                found = await asyncio.to_thread(_reports, order, response, key, self._means.name)
                self._note(member, task, found)
                return found
        return [failure_of(task, FailureClass.WORKER_LOST, OVER)]

    async def _gather(self, task: Task, gang: Gang, member: MemberCall) -> Failure | None:
        """Wait until every member of the gang has a function. A gang that cannot have all of them soon has none: its
        functions leave, so that two gangs never hold a part each of the calls that an account allows. Members with
        blocks stay."""
        gathered, limit = False, lifetime.GATHERING * random.uniform(0.5, 1.0)  # rivals do not give up together
        try:
            async with asyncio.timeout(limit):
                await member.ask(encode_content(self._hub.session, Adopt(()), self._hub.key))
                await self._hub.gathered(gang)
            gathered = True
        except TimeoutError:
            how = f"the {gang.size} functions of its gang had not all started after {limit:.0f} s"
            return failure_of(task, FailureClass.THROTTLED, how)
        except MemberGone:
            return failure_of(task, FailureClass.WORKER_LOST, "it left before its gang was complete")
        finally:
            if not gathered and not member.holds:
                self._dismiss(member)
        return None

    def _seconds(self, task: Task) -> float:
        """Maximum seconds of its member's time for the task."""
        if not task.timeout:
            return self._span.work
        return min(task.timeout * len(task.partitions) + START_SECONDS, self._span.work)

    def _note(self, member: MemberCall, task: Task, reports: list[Report]) -> None:
        member.holds.note(task, reports)
        for report in reports:
            if isinstance(report, Failure) and report.failure is FailureClass.OUT_OF_MEMORY:
                self._means.sizes.ran_out(task, report.partition)

    async def _loss(self, task: Task, member: MemberCall) -> Failure:
        """The failure, from the way the member ended. The provider's time limit is not the task's limit."""
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
        self._dismiss(member)  # the remains of a member, such as a second execution of its call
        self._member = self._called(size)
        return self._member

    def _called(self, size: int) -> MemberCall:
        return MemberCall(self._means, self._hub, self._span, size)

    async def _replace(self, old: MemberCall, size: int) -> MemberCall:
        """Call another member, and let it take over the blocks as far as time allows. Lost blocks are recomputed."""
        new = self._member = self._called(size)
        if old.holds:
            body = encode_content(self._hub.session, Adopt(old.holds.sets()), self._hub.key)
            with contextlib.suppress(MemberGone, TimeoutError, StoreError):
                async with asyncio.timeout(self._span.total - self._span.work):
                    await new.ask(body)
                    new.holds = old.holds
        self._dismiss(old)
        return new

    def _dismiss(self, member: MemberCall | None) -> None:
        """Dismiss the member. Its call ends soon; only `stop` waits for it."""
        if member is self._member:
            self._member = None
        if member is not None:
            leaving = spawn(member.leave(), name=f"leaving of {member.name}")
            self._leaving.add(leaving)
            leaving.add_done_callback(self._leaving.discard)

    def _rest(self) -> None:
        """Start watching the member, which is idle from now on."""
        if self._member is not None and self._keeper is None and not self._underway.stopped:
            self._keeper = spawn(self._keep(), name=f"keeper of {self.name}")

    async def _keep(self) -> None:
        """Between tasks: dismiss a member that has been idle for long; replace a member with blocks whose time is
        over."""
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
                (await self._replace(member, size)).used = used  # the new member has run no task
        else:
            self._dismiss(member)


def _reports(order: Order, response: Response, key: bytes, provider: str) -> list[Report]:
    """Raises UsageError when function and driver do not match, StoreError when the reports cannot be read."""
    refuse(response, provider)
    try:
        return take_reports(order, response, key)
    except (CorruptError, MissingError) as error:
        return [failure_of(order.task, FailureClass.CORRUPT, error.message)]
