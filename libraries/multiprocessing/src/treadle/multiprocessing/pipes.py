"""Pipes between machines: their messages are at the keeper."""

from __future__ import annotations

import contextlib
import errno
from collections import deque
from typing import Any

from treadle.primitives.objects import Handle, read, removes, shared, when
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
        self.travelling = [0, 0]

    def hold(self, end: int, holder: int, came: bool) -> None:
        self.holders[end].append(holder)
        self.travelling[end] -= came

    def lend(self, end: int) -> None:
        self.travelling[end] += 1

    @removes
    def close(self, end: int, holder: int) -> None:
        if holder in self.holders[end]:
            self.holders[end].remove(holder)

    def _is_open(self, end: int) -> bool:
        return bool(self.holders[end]) or self.travelling[end] > 0

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

    def __init__(self, pipe: Handle[PipeState], end: int, readable: bool, writable: bool, came: bool = False) -> None:
        super().__init__(pipe, lambda: end, readable, writable)
        self._end = end
        pipe.hold(end, presence(), came)

    def __reduce__(self) -> Any:
        self._check_closed()
        self.channel.lend(self._end)
        return PipeConnection, (self.channel, self._end, self.readable, self.writable, True)

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
