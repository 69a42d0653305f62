"""Connections for threads: a message is sent with one system call, and usually received with one.

Sockets are non-blocking and waited for with `poll`, so that every call keeps its deadline even when the other side
sends slowly. Deadlines are times of `time.monotonic()`.
"""

from __future__ import annotations

import contextlib
import functools
import select
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from ..stores.atomic_files import Buffer
from . import framing
from .errors import ConnectionClosed, NotAuthentic, TimedOut, WireError
from .handshake import MESSAGE_LIMIT, Handshake
from .message_codec import decoder, encode_head
from .transports import WANT_READ, Transport

_BUFFER = 64 << 10


class Connection:
    """Framed messages over a connected socket. One thread may send while another receives.

    A WireError closes the connection, because the position in the stream is lost; TimedOut of `receive_head` is the
    exception.
    """

    def __init__(self, sock: socket.socket, transport: Transport, *, name: str = "") -> None:
        sock.setblocking(False)
        self.sock = sock
        self.name = name or _peer_name(sock)
        """The other side's name, for error messages."""
        self.run = ""
        """The run of the handshake."""
        self._transport = transport
        self._buffer = memoryview(bytearray(_BUFFER))
        self._start = self._end = 0
        self._tail_left = 0
        self._readable, self._writable = select.poll(), select.poll()
        self._readable.register(sock, select.POLLIN)
        self._writable.register(sock, select.POLLOUT)
        self._closed = self._aborted = False

    def fileno(self) -> int:
        return self.sock.fileno()

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def transport(self) -> Transport:
        """The transport, for a shell that waits in its own way; such a shell also takes buffered bytes (`unread`)."""
        return self._transport

    def unread(self) -> bytes:
        """Remove and return the bytes after the last received message."""
        rest = bytes(self._buffer[self._start : self._end])
        self._start = self._end
        return rest

    @property
    def stale(self) -> bool:
        """Return whether unexpected input is waiting: between request and answer that is the end of the stream or an
        error.
        """
        return self._closed or self._start < self._end or bool(self._readable.poll(0))

    # -- sending ----------

    def send(self, message: msgspec.Struct, tail: Buffer | Sequence[Buffer] = b"", *, deadline: float) -> None:
        """Send a message. On return the kernel has it, not necessarily the other side. Raises WireError."""
        self.send_frame(encode_head(message), tail, deadline=deadline)

    def send_frame(self, head: bytes, tail: Buffer | Sequence[Buffer] = b"", *, deadline: float) -> None:
        """Send a message with an encoded head."""
        self._send_all(framing.encode(head, tail), deadline)

    def send_file(self, message: msgspec.Struct, descriptor: int, offset: int, count: int, *, deadline: float) -> None:
        """Send a message whose tail is a range of a file, without a copy into this process. Raises WireError.

        A shorter file breaks the connection, because the length was announced.
        """
        head = encode_head(message)
        self._send_all([framing.LENGTHS.pack(len(head), count) + head], deadline)
        end = offset + count
        while offset < end:
            send = functools.partial(self._transport.send_file, descriptor, offset, end - offset)
            sent = self._until_ready(send, self._writable, deadline)
            if sent == 0:
                raise self._broken(ConnectionClosed(f"a file to be sent to {self.name} became shorter", "Ask again."))
            offset += sent

    def send_pieces(self, message: msgspec.Struct, pieces: Iterable[Buffer], count: int, *, deadline: float) -> None:
        """Send a message whose tail of `count` bytes comes in pieces as they become available. Raises WireError.

        The connection is unusable when `pieces` raises or yields fewer bytes.
        """
        head = encode_head(message)
        self._send_all([framing.LENGTHS.pack(len(head), count) + head], deadline)
        for piece in pieces:
            count -= len(piece)
            self._send_all([piece], deadline)
        if count:
            raise self._broken(ConnectionClosed(f"what was to be sent to {self.name} has another length", "Ask again."))

    def _send_all(self, buffers: list[Buffer], deadline: float) -> None:
        first = 0
        while True:
            rest = buffers[first:] if first else buffers
            sent = self._until_ready(functools.partial(self._transport.send, rest), self._writable, deadline)
            while first < len(buffers) and sent >= len(buffers[first]):
                sent -= len(buffers[first])
                first += 1
            if first == len(buffers):
                return
            buffers[first] = memoryview(buffers[first])[sent:]

    # -- receiving ----------

    def receive_head(
        self,
        kind: Any,
        deadline: float,
        *,
        head_limit: int = framing.HEAD_LIMIT,
        tail_limit: int = 0,
    ) -> tuple[Any, int]:
        """Return the next message and the length of its tail, which `receive_into` must fetch before the next call.

        `kind`: a Struct type, or a union of tagged ones. Raises WireError; ConnectionClosed at the end. After TimedOut
        it may be called again.
        """
        head, length = self._receive_head(deadline, head_limit, tail_limit)
        try:
            return decoder(kind)(head, self.name), length
        except WireError:
            self.close()
            raise

    def receive_into(self, view: memoryview, deadline: float) -> None:
        """Fill `view` with the next bytes of the tail, straight from the socket. Raises WireError."""
        if len(view) > self._tail_left:
            raise ValueError(f"{len(view)} bytes of a tail that has {self._tail_left} left")
        self._tail_left -= len(view)
        count = min(len(view), self._end - self._start)
        view[:count] = self._buffer[self._start : self._start + count]
        self._start += count
        while count < len(view):
            receive = functools.partial(self._transport.receive, view[count:])
            received = self._until_ready(receive, self._readable, deadline)
            if received == 0:
                raise self._broken(WireError(f"{self.name} ended within a message", "Connect again."))
            count += received

    def _receive_head(self, deadline: float, head_limit: int, tail_limit: int) -> tuple[memoryview, int]:
        """Return a view that is valid until the next call."""
        if self._tail_left:
            raise ValueError("the tail of the message before was not fetched")
        self._fill(framing.LENGTHS.size, deadline)
        try:
            head, tail = framing.parse_lengths(self._buffer, self._start, head_limit, tail_limit)
        except WireError as error:
            raise self._broken(error) from None
        self._fill(framing.LENGTHS.size + head, deadline)
        begin = self._start + framing.LENGTHS.size
        self._start, self._tail_left = begin + head, tail
        return self._buffer[begin : begin + head], tail

    def _fill(self, size: int, deadline: float) -> None:
        """Wait until `size` bytes of the next frame are in the buffer, which grows with the received bytes."""
        if self._start == self._end:
            self._start = self._end = 0
            if len(self._buffer) > _BUFFER:
                self._buffer = memoryview(bytearray(_BUFFER))
        while (have := self._end - self._start) < size:
            if size > len(self._buffer) - self._start and (self._start or have == len(self._buffer)):
                self._make_room(max(_BUFFER, min(size, 2 * have)))
            if self._start == self._end and not self._transport.buffers and not self._wait(self._readable, deadline):
                raise self._late()  # wait first: usually the message has not arrived yet
            receive = functools.partial(self._transport.receive, self._buffer[self._end :])
            received = self._until_ready(receive, self._readable, deadline, safe=True)
            if received == 0:
                between = self._aborted or self._start == self._end
                what = "closed the connection" if between else "ended within a message"
                raise self._broken(
                    (ConnectionClosed if between else WireError)(f"{self.name} {what}", "Connect again.")
                )
            self._end += received

    def _make_room(self, size: int) -> None:
        """Move the buffered bytes to the front of a buffer of this size."""
        rest = self._buffer[self._start : self._end]
        self._buffer = memoryview(bytearray(size))
        self._buffer[: len(rest)] = rest
        self._start, self._end = 0, len(rest)

    # -- both ----------

    def _until_ready(
        self, operation: Callable[[], int], poll: select.poll, deadline: float, *, safe: bool = False
    ) -> int:
        """Repeat the operation until it succeeds. `safe`: a timeout keeps the position in the stream known."""
        try:
            while (done := operation()) < 0:
                wanted = self._readable if done == WANT_READ else self._writable
                if not self._wait(poll if wanted is poll else self._poll_once(done), deadline):
                    raise self._late() if safe else self._broken(self._late())
        except (OSError, ValueError) as error:  # ValueError: the socket is closed
            raise self._broken(_lost(self.name, error, self._aborted)) from error
        return done

    def _wait(self, poll: select.poll, deadline: float) -> bool:
        """Return whether it became ready before the deadline; checks once even after the deadline."""
        while True:
            left = deadline - time.monotonic()
            if poll.poll(min(max(left, 0), 3600) * 1000):
                return True
            if left <= 0:
                return False

    def _poll_once(self, wanted: int) -> select.poll:
        """Return a poll for the other direction, which another thread may be using: TLS may read in order to send."""
        poll = select.poll()
        poll.register(self.sock, select.POLLIN if wanted == WANT_READ else select.POLLOUT)
        return poll

    def _late(self) -> TimedOut:
        return TimedOut(f"{self.name} did not answer or take data in time", "It may be busy or cut off.")

    def _broken(self, error: WireError) -> WireError:
        self.close()
        return error

    def secure(self, deadline: float) -> bytes:
        """Run the TLS handshake; returns the digest of the server's certificate to a client, if any. Raises
        WireError.
        """
        self._until_ready(self._transport.secure, self._readable, deadline)
        return self._transport.certificate()

    def greet(self, handshake: Handshake, deadline: float) -> None:
        """Run one side of the handshake. Raises NotAuthentic and WireError; then the connection is closed."""
        try:
            if not handshake.is_server:
                self.send_frame(handshake.opening(), deadline=deadline)
            while not handshake.done:
                head, _ = self._receive_head(deadline, MESSAGE_LIMIT, 0)
                if answer := handshake.receive(bytes(head)):
                    self.send_frame(answer, deadline=deadline)
        except NotAuthentic:
            if words := handshake.last_words:
                with contextlib.suppress(WireError):
                    self.send_frame(words, deadline=deadline)
            self.close()
            raise
        except WireError:
            self.close()
            raise
        self.run = handshake.run

    def abort(self) -> None:
        """End the connection for the threads that use it, which get ConnectionClosed and then close it. For any thread,
        at any time.
        """
        self._aborted = True
        with contextlib.suppress(OSError):
            socket.socket.shutdown(self.sock, socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the socket. Only for the thread that uses it: a descriptor must not be reused while a thread waits for
        it.
        """
        if not self._closed:
            self.abort()
            self._closed = True
            self.sock.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _lost(name: str, error: Exception, by_us: bool) -> WireError:
    if by_us:
        return ConnectionClosed(f"the connection to {name} was closed here", "Connect again.")
    return WireError(f"the connection to {name} was lost: {error}", "Connect again.")


def _peer_name(sock: socket.socket) -> str:
    try:
        host, port = sock.getpeername()[:2]
    except (OSError, ValueError):
        return "the other side"
    return f"{host}:{port}"
