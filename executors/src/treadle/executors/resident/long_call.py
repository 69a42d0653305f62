"""The driver's view of one member's long call: starting, running, ended."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time

from treadle.primitives.asyncio_tasks import spawn
from treadle.primitives.errors import StoreError

from ..functions.attempt import Means
from ..functions.call_records import START_SECONDS
from ..functions.failure_classification import refuse
from ..functions.invoker import Answer, NotRun, Throttled
from ..functions.payload import JoinOrder, Response, decode_response, encode_content
from .coordinator_host import Hub, MemberGone
from .lifetime import CallWindow, Holdings, SlotMember

_POLL = 0.1
"""Seconds between checks for a member that is dismissed before it has connected."""
_SPARE = 30.0
"""A member leaves by itself this many seconds after its slot would dismiss it. A provider may make a copy of a call at
any time, and a copy has no slot."""
_LAST_WORDS = 3.0
"""Seconds from the end of a call until the coordinator notices, or the other way round."""


class MemberCall:
    """One member, from the decision to call it to the end of its call."""

    def __init__(self, means: Means, hub: Hub, span: CallWindow, size: int) -> None:
        """`size`: bytes of the function."""
        self._means, self._hub, self._span = means, hub, span
        self.name = f"member-{secrets.token_hex(6)}"
        self.holds = Holdings()
        self.used = time.monotonic()
        """The end of its last task."""
        self._standing = SlotMember(self.used, size, fresh=True)
        self._unmade = True
        """The call waits to be made, for the first time or after a refusal."""
        self._lost = float("inf")
        """When the answer of its call was lost."""
        self._call = spawn(self._made(), name=self.name)

    @property
    def standing(self) -> SlotMember | None:
        """None: the member is gone."""
        gone = self._call.done() and (self._call.cancelled() or self._call.exception() or self._answer() is not None)
        late = time.monotonic() > self._comes_until
        lost = late and self._call.done() and not self._hub.present(self.name)
        return None if gone or lost else self._standing

    async def ask(self, body: bytes) -> Response:
        """Send a request to the member. Raises MemberGone; UsageError when functions and driver do not match;
        NotRun."""
        asking = spawn(self._hub.ask(self.name, body), name=f"task of {self.name}")
        ending = spawn(self._ended(), name=f"end of {self.name}")
        try:
            await asyncio.wait({asking, ending}, return_when=asyncio.FIRST_COMPLETED)
            if not asking.done():
                ending.result()  # raises the error that prevented the call
                await asyncio.wait({asking}, timeout=_LAST_WORDS)
            if not asking.done():
                raise MemberGone(begun=True)
            self._standing = self._standing._replace(fresh=False)
            return decode_response(await asking)
        finally:
            for task in (asking, ending):
                task.cancel()
            await asyncio.gather(asking, ending, return_exceptions=True)
            self.used = time.monotonic()

    async def end(self) -> Answer | None:
        """How its call ended, if that is known soon."""
        with contextlib.suppress(TimeoutError, StoreError):
            async with asyncio.timeout(_LAST_WORDS):
                return await asyncio.shield(self._call)
        return None

    async def leave(self) -> None:
        """Dismiss the member once it has connected, and wait a moment for its call to end. Cancelling gives the call
        up."""
        try:
            await self._come()
            self._hub.dismiss(self.name)
            await asyncio.wait({self._call}, timeout=_LAST_WORDS)
        finally:
            self._call.cancel()
            await asyncio.gather(self._call, return_exceptions=True)

    async def _come(self) -> None:
        """Wait until the member has connected, its call has ended, or it cannot connect."""
        until = self._comes_until
        while not (self._call.done() or self._unmade or self._hub.present(self.name)):
            if time.monotonic() > until:
                return
            await asyncio.sleep(_POLL)

    # -- its call

    @property
    def _comes_until(self) -> float:
        """The latest time for the member to connect; earlier once the answer was lost, see `Call.lost`."""
        until = self._standing.born + self._means.invoker.limits.queued_seconds + START_SECONDS
        return min(until, self._lost + self._means.waits + START_SECONDS)

    def _answer(self) -> Answer | None:
        """How the call ended, if known."""
        answer = self._call.result()
        return None if answer.ended == "accepted" else answer

    async def _made(self) -> Answer:
        try:
            return await self._taken()
        finally:
            self._means.crowding.over(self.name)

    async def _taken(self) -> Answer:
        """Call until the provider accepts, however often it refuses. A call whose answer was lost counts as running."""
        means, limits = self._means, self._means.invoker.limits
        while True:
            made = await means.gate.wait()
            self._unmade = False
            self._standing = self._standing._replace(born=time.monotonic())
            request = await asyncio.to_thread(self._request)
            means.crowding.over(self.name)
            try:
                answer = await means.invoker.invoke(request, self._standing.size, limits.seconds)
            except Throttled as refused:
                self._unmade = True
                means.usage.throttled += 1
                means.gate.throttled(made, str(refused), refused.retry_after)
                if refused.at_once:
                    means.crowding.refused(self.name)
                continue
            except NotRun:
                raise
            except StoreError as lost:
                means.usage.calls, means.usage.lost = means.usage.calls + 1, means.usage.lost + 1
                self._lost = time.monotonic()
                return Answer("accepted", how=lost.message)
            means.usage.calls, means.usage.cold = means.usage.calls + 1, means.usage.cold + answer.cold
            return Answer("accepted", how="another run of the call goes on") if _is_copy(answer) else answer

    def _request(self) -> bytes:
        span, hub = self._span, self._hub
        meeting, idle = hub.meeting, hub.meeting.idle + _SPARE
        about = (hub.address, self.name, span.total, span.work)
        join = JoinOrder(*about, meeting.direct, idle, hub.identity(), inbound=meeting.inbound)
        return encode_content(hub.session, join, hub.key)

    async def _ended(self) -> None:
        """Return once the member is gone and the coordinator may not know it. Raises the error that prevented the
        call."""
        answer = await asyncio.shield(self._call)
        if answer.ended == "accepted":
            await asyncio.sleep(max(0.0, self._comes_until - time.monotonic()))
            if self._hub.present(self.name):
                await asyncio.Event().wait()  # the coordinator will report the end
        elif answer.ended == "answered":
            refuse(decode_response(answer.response), self._means.name)


def _is_copy(answer: Answer) -> bool:
    """Whether the answer comes from a second execution of a call, which found the first one running."""
    return answer.ended == "answered" and decode_response(answer.response).problem == "copy"
