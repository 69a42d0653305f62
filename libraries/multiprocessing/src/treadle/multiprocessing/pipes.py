"""Pipes between machines: their messages are at the keeper."""

from __future__ import annotations

import contextlib
import errno
from collections import deque
from functools import partial
from multiprocessing import context
from typing import Any

from treadle.primitives.objects import Handle, current, read, removes, shared, when
from treadle.primitives.objects.large_values import Packed

from .by_value import dumps
from .keeper_connections import KeeperConnection
from .places import new, packed, presence
from .state import CHANNEL_BYTES, size_of


@shared
class PipeState:
    """The ends 0 and 1 of a pipe. An end is open while a process holds it, and while it is on its way to one."""

    def __init__(self) -> None:
        self.items: list[deque[Packed]] = [deque(), deque()]
        """The items that each end has yet to receive."""
        self.bytes = [0, 0]
        self.holders: list[list[int]] = [[], []]
        self.journeys: list[set[int]] = [set(), set()]

    def hold(self, end: int, holder: int, journey: int) -> None:
        self.holders[end].append(holder)
        self.arrive(end, journey)

    def leave(self, end: int) -> int:
        """The end is on its way to another process; returns the number of its journey."""
        self.journeys[end].add(current().number)
        return current().number

    def arrive(self, end: int, journey: int) -> None:
        """End a journey, also without an arrival."""
        self.journeys[end].discard(journey)

    @removes
    def close(self, end: int, holder: int) -> None:
        if holder in self.holders[end]:
            self.holders[end].remove(holder)

    def _is_open(self, end: int) -> bool:
        return bool(self.holders[end] or self.journeys[end])

    @when(lambda self, end, _: self.bytes[1 - end] < CHANNEL_BYTES or not self._is_open(1 - end))
    def put(self, end: int, item: Packed) -> None:
        if not self._is_open(1 - end):
            raise BrokenPipeError(errno.EPIPE, "Broken pipe")
        self.items[1 - end].append(item)
        self.bytes[1 - end] += size_of(item)

    @removes
    @when(lambda self, end: self.has_items(end))
    def get(self, end: int) -> Packed:
        """Wait for an item. Raises EOFError when the other end is closed."""
        if not self.items[end]:
            raise EOFError
        self.bytes[end] -= size_of(self.items[end][0])
        return self.items[end].popleft()

    @when(lambda self, end: self.has_items(end))
    def ready(self, end: int) -> None:
        """Wait until `get` would not."""

    @read
    def has_items(self, end: int) -> bool:
        return bool(self.items[end]) or not self._is_open(1 - end)

    def _session_ended(self, session: int) -> None:
        self.holders = [[one for one in holders if one != session] for holders in self.holders]


class PipeConnection(KeeperConnection):
    """One end of a pipe."""

    def __init__(self, pipe: Handle[PipeState], end: int, readable: bool, writable: bool, journey: int = 0) -> None:
        super().__init__(pipe, lambda: end, readable, writable)
        self._end = end
        pipe.hold(end, presence(), journey)

    def __reduce__(self) -> Any:
        self._check_closed()
        journey = self.channel.leave(self._end)
        popen: Any = context.get_spawning_popen()
        if popen is not None:  # the process may end before it has the end
            popen.journeys.append(partial(self.channel.arrive, self._end, journey))
        return PipeConnection, (self.channel, self._end, self.readable, self.writable, journey)

    def send(self, obj: Any) -> None:
        self.send_bytes(dumps(obj))

    def _send_bytes(self, data: Any) -> None:
        self.channel.put(self._end, packed(bytes(data)))

    def _close(self) -> None:
        super()._close()
        with contextlib.suppress(Exception):  # the keeper has ended, or the interpreter ends
            self.channel.close(self._end, presence())


def remote_pipe(duplex: bool) -> tuple[PipeConnection, PipeConnection]:
    """Return both ends; one that can only receive, and one that can only send, unless `duplex`."""
    pipe = new(PipeState)
    return PipeConnection(pipe, 0, True, duplex), PipeConnection(pipe, 1, duplex, True)
