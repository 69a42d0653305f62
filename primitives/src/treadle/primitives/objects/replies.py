"""Answers that wait until all followers have their entries, and the limits of calls."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from .instructions import ShardLimits, ToConnection
from .messages import MethodCall, MethodEntry, RejectedEntry, ToClient
from .state import State


class Replies:
    """Answers in the order of their entries. A read needs the lease, too: another primary may have newer entries."""

    def __init__(self) -> None:
        self.routes: dict[int, int] = {}
        """The connection of each session's last message."""
        self._answers: deque[tuple[int, int, ToClient]] = deque()
        """Entry that must be committed, session, and message."""
        self._reads: deque[tuple[int, int, ToClient]] = deque()

    @property
    def waiting(self) -> bool:
        return bool(self._answers or self._reads)

    @property
    def reads(self) -> bool:
        """Whether reads wait."""
        return bool(self._reads)

    def hold(self, index: int, session: int, message: ToClient) -> None:
        self._answers.append((index, session, message))

    def hold_read(self, index: int, session: int, message: ToClient) -> None:
        self._reads.append((index, session, message))

    def release(self, committed: int, *, leased: bool) -> Iterator[ToConnection]:
        """Yield the answers that may be sent."""
        for queue in (self._answers, self._reads) if leased else (self._answers,):
            while queue and queue[0][0] <= committed:
                _, session, message = queue.popleft()
                if (connection := self.routes.get(session)) is not None:
                    yield ToConnection(connection, message)


class CallLimits:
    """Refuses calls. The sizes of objects are measured from time to time."""

    def __init__(self, limits: ShardLimits) -> None:
        self._limits = limits
        self._sizes: dict[str, list[int]] = {}
        """Of each object: calls and bytes of arguments since it was measured, and its size."""

    def entry(self, call: MethodCall, state: State, time: float) -> MethodEntry | RejectedEntry:
        """Return the entry of a call, or of its refusal."""
        if reason := self._refusal(call, state):
            return RejectedEntry(time, call.session, call.sequence, reason)
        deadline = None if call.timeout is None else time + call.timeout
        return MethodEntry(time, call.session, call.sequence, call.object, call.method, call.arguments, deadline)

    def _refusal(self, call: MethodCall, state: State) -> str:
        """Return why the call is refused; empty: it is not."""
        limits = self._limits
        if len(call.arguments) > limits.arguments:
            return f"the arguments have {len(call.arguments):,} bytes; {limits.arguments:,} are allowed"
        if len(state.waiting) >= limits.waiting:
            return f"{limits.waiting:,} calls wait already"
        size = self._sizes.setdefault(call.object, [0, 0, 0])
        size[0] += 1
        size[1] += len(call.arguments)
        if size[0] >= 1000 or size[1] > limits.state // 16 or size[2] > limits.state:
            size[:] = [0, 0, state.size(call.object)]
        if size[2] > limits.state and not state.removes(call.object, call.method):
            return f"{call.object} has {size[2]:,} bytes; {limits.state:,} are allowed"
        return ""
