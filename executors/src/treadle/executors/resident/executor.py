"""Resident functions as an executor."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from treadle.primitives import sealing
from treadle.primitives.asyncio_tasks import spawn
from treadle.primitives.channels.gang import MeetingPlace
from treadle.primitives.errors import UsageError

from ..functions.attempt import CallCounts, Means
from ..interface import Capabilities
from .coordinator_host import Hub, Meeting
from .lifetime import CallWindow, leavers
from .slot import MemberSlot


class MemberExecutor:
    """At most `slots` members at a time. Each is a call that lasts as long as the function's time limit allows, and
    runs task after task. Idle slots have no member.

    `means`: the resources for calling the provider's functions (`FunctionExecutor.means`). `key_file` holds the
    deployment key. Cancelling kills the worker that runs the task, not the member.
    """

    def __init__(self, means: Means, meeting: Meeting, *, key_file: str, slots: int) -> None:
        """Raises UsageError for invalid addresses, or fewer than one slot."""
        if slots < 1:
            raise UsageError(f"the members of {means.name} need at least one slot", "Give slots=1 or more.")
        key = sealing.load_or_create_key(key_file)
        span = CallWindow.of(means.invoker.limits.seconds)
        self._means = means
        self._hub = Hub(meeting, key, Path(key_file).absolute().parent / "tls")
        self.capabilities = Capabilities(
            means.name,
            slots,
            shares_host=False,
            memory_limit=means.sizes.memory_limit,
            time_limit=span.work,
            temporary=means.invoker.limits.temporary,
            sizes=means.invoker.limits.memory,
            gangs=True,
            peers=meeting.direct,
            kept=meeting.idle,
        )
        self._slots = [MemberSlot(f"{means.name}-member-{i}", means, self._hub, span, key) for i in range(slots)]

        means.crowding.make_room = self._make_room
        self._giving_way: list[asyncio.Task[None]] = []

    def _make_room(self, wanted: int) -> None:
        """See `Crowding.make_room`. Members that are not idle for long enough are considered again at the next
        refusal."""
        self._giving_way = [one for one in self._giving_way if not one.done()]
        if self._giving_way:
            return
        slots = {slot.name: slot for slot in self._slots}
        resting = [one for slot in self._slots if (one := slot.resting) is not None]
        working = sum(slot.has_member for slot in self._slots) - len(resting)
        wanted -= sum(slot.leaving for slot in self._slots)
        for leaver, heir in leavers(resting, working, max(wanted, 0), time.monotonic()):
            work = slots[leaver].give_way(slots[heir] if heir else None)
            self._giving_way.append(spawn(work, name=f"{leaver} gives way"))

    @property
    def slots(self) -> Sequence[MemberSlot]:
        return self._slots

    @property
    def usage(self) -> CallCounts:
        """Counts of the calls so far; a member is one call."""
        return self._means.usage

    async def start(self) -> None:
        """Listen for members, which are called when there are tasks. Raises UsageError, WireError."""
        await self._hub.start()

    def gang_place(self, run: str) -> AbstractAsyncContextManager[MeetingPlace]:
        """See `GangExecutor`."""
        return self._hub.gang_place(run)

    async def stop(self) -> None:
        """Give up every running attempt and dismiss every member. Members that do not react end by themselves."""
        for one in self._giving_way:
            one.cancel()
        await asyncio.gather(*self._giving_way, return_exceptions=True)
        await asyncio.gather(*(slot.stop() for slot in self._slots))
        await self._hub.stop()
        self._means.mailbox.close()
        await self._means.invoker.close()
