"""Pipes between machines: their messages are at the keeper."""

from __future__ import annotations

import contextlib
import errno
import io
from collections import deque
from collections.abc import Callable
from multiprocessing import connection
from typing import Any

from treadle.primitives.objects import Handle, read, removes, shared, when
from treadle.primitives.objects.large_values import Packed

from .by_value import dumps
from .places import new, packed, presence, unpacked
from .queue_ends import Watch
from .state import CHANNEL_BYTES, size_of
from .synchronize import waited


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


class PipeConnection(connection._ConnectionBase):
    """One end of a pipe."""

    _check_closed: Callable[[], None]
    _watch: Watch | None = None

    def __init__(self, pipe: Handle[PipeState], end: int, readable: bool, writable: bool, came: bool = False) -> None:
        super().__init__(0, readable, writable)
        self._pipe, self._end = pipe, end
        pipe.hold(end, presence(), came)

    def __reduce__(self) -> Any:
        self._check_closed()
        self._pipe.lend(self._end)
        return PipeConnection, (self._pipe, self._end, self.readable, self.writable, True)

    def fileno(self) -> int:
        """Return a descriptor for `connection.wait`. It is readable while there is something to receive."""
        self._check_closed()
        if self._watch is None:
            self._watch = Watch(self, self._pipe, self._end)
        return self._watch.descriptor

    def send(self, obj: Any) -> None:
        self.send_bytes(dumps(obj))

    def _send_bytes(self, data: Any) -> None:
        self._pipe.put(self._end, packed(bytes(data)))

    def _recv_bytes(self, maxsize: int | None = None) -> io.BytesIO | None:
        data = unpacked(self._pipe.get(self._end))
        if self._watch is not None:
            self._watch.look()
        if maxsize is not None and len(data) > maxsize:
            return None
        found = io.BytesIO()
        found.write(data)
        return found

    def _poll(self, timeout: float | None) -> bool:
        if timeout is not None and timeout <= 0:
            return bool(self._pipe.has_items(self._end))
        return waited(self._pipe, "ready", timeout, self._end)

    def _close(self) -> None:
        if self._watch is not None:
            self._watch.end()
        with contextlib.suppress(Exception):  # the keeper has ended, or the interpreter ends
            self._pipe.close(self._end, presence())


def remote_pipe(duplex: bool) -> tuple[PipeConnection, PipeConnection]:
    """Return both ends; one that can only receive, and one that can only send, unless `duplex`."""
    pipe = new(PipeState)
    return PipeConnection(pipe, 0, True, duplex), PipeConnection(pipe, 1, duplex, True)
