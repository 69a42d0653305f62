"""A listening socket in an event loop that bounds the number and time of unauthenticated connections (strangers).

`asyncio`'s own server accepts every connection, logs a traceback for each one that finds no descriptor, and does not
show a connection before its TLS handshake is done.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
import traceback
from collections.abc import Callable
from typing import Any

from ..asyncio_tasks import spawn
from ..log_rate_limit import limited_logger
from .unauthenticated import Strangers

_log = limited_logger("treadle.listeners")
_BATCH = 16
"""Connections accepted at once; then open connections have their turn."""
_PAUSE = 0.1
"""Seconds without accepting when no descriptor is left."""


class AcceptedConnection:
    """An accepted connection; a stranger until its protocol calls `proved`."""

    def __init__(self, acceptor: Acceptor) -> None:
        self._acceptor = acceptor
        self._task: asyncio.Task[Any] | None = None
        self._transport: asyncio.Transport | None = None

    def connecting(self, task: asyncio.Task[Any]) -> None:
        """Called by the acceptor."""
        self._task = task

    def made(self, transport: asyncio.Transport) -> None:
        """Call in `connection_made`."""
        self._transport = transport

    def proved(self) -> None:
        """The connection may stay from now on."""
        self._acceptor.strangers.remove(self)

    def unproved(self) -> None:
        """Make it a stranger again: it must authenticate, or send a message, within the listener's time limit."""
        self._acceptor.add(self)

    def gone(self) -> None:
        """Call in `connection_lost`."""
        self._acceptor.strangers.remove(self)
        self._transport = self._task = None

    def end(self) -> None:
        """Close the connection now."""
        if self._transport is not None:
            self._transport.abort()
        elif self._task is not None:
            self._task.cancel()  # still in the TLS handshake


class Acceptor:
    """Accepts connections until it is closed. `protocol` makes each connection's protocol, which calls
    `AcceptedConnection`'s methods.
    """

    def __init__(
        self,
        listener: socket.socket,
        name: str,
        strangers: Strangers[AcceptedConnection],
        protocol: Callable[[AcceptedConnection], asyncio.BaseProtocol],
        *,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Owns `listener` from now on. `name` is for the log. For the running loop."""
        self.strangers = strangers
        self._listener, self._name, self._protocol, self._tls = listener, name, protocol, tls
        self._loop = asyncio.get_running_loop()
        self._callers: set[asyncio.Task[Any]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._resting: asyncio.TimerHandle | None = None
        listener.setblocking(False)
        self._loop.add_reader(listener.fileno(), self._accept)

    def close(self) -> None:
        """Stop accepting. Open connections stay, except those in the TLS handshake."""
        self._loop.remove_reader(self._listener.fileno())
        for timer in (self._timer, self._resting):
            if timer is not None:
                timer.cancel()
        for task in self._callers:
            task.cancel()
        self._listener.close()

    def add(self, caller: AcceptedConnection) -> None:
        """See `AcceptedConnection.unproved`."""
        self.strangers.add(caller, time.monotonic())
        if self._timer is None:
            self._watch()

    def _accept(self) -> None:
        for _ in range(_BATCH):
            if (wait := self._make_room()) > 0:
                self._rest(wait)
                return
            try:
                sock, _where = self._listener.accept()
            except (BlockingIOError, ConnectionError):
                return  # the caller has disconnected
            except OSError as error:
                self._without_descriptors(error)
                return
            self._begin(sock)

    def _make_room(self) -> float:
        """Make room for one stranger; returns seconds to wait if that is not possible yet."""
        if len(self.strangers) < self.strangers.most:
            return 0.0
        now = time.monotonic()
        if (oldest := self.strangers.past_grace(now)) is None:
            return self.strangers.next_grace(now)
        self._end(oldest, "others came")
        return 0.0

    def _without_descriptors(self, error: OSError) -> None:
        _log.warning("%s: no connection can be accepted: %s", self._name, error.strerror)
        if (oldest := self.strangers.oldest()) is not None:
            oldest.end()
        self._rest(_PAUSE)

    def _rest(self, seconds: float) -> None:
        self._loop.remove_reader(self._listener.fileno())
        self._resting = self._loop.call_later(seconds, self._loop.add_reader, self._listener.fileno(), self._accept)

    def _begin(self, sock: socket.socket) -> None:
        caller = AcceptedConnection(self)
        work = self._loop.connect_accepted_socket(lambda: self._protocol(caller), sock, ssl=self._tls)
        task = spawn(work, name=f"a caller of {self._name}")
        caller.connecting(task)
        self._callers.add(task)
        task.add_done_callback(lambda _: self._connected(task, caller, sock))
        self.add(caller)

    def _connected(self, task: asyncio.Task[Any], caller: AcceptedConnection, sock: socket.socket) -> None:
        """The TLS handshake is over. If it failed, close the socket, which nothing else does."""
        self._callers.discard(task)
        error = _error_of(task)
        if error is None:
            return
        caller.gone()
        sock.close()
        if not isinstance(error, OSError | asyncio.CancelledError):
            self._loop.call_exception_handler({"message": f"a caller of {self._name}", "exception": error})
        # The frames hold the connection, with 256 KiB of TLS buffer, until the garbage collector runs.
        traceback.clear_frames(error.__traceback__)

    def _watch(self) -> None:
        """End strangers whose time is over, and schedule the next check."""
        self._timer = None
        for one in self.strangers.expire(time.monotonic()):
            self._end(one, "their time was over")
        if len(self.strangers):
            self._timer = self._loop.call_later(max(0.0, self.strangers.due - time.monotonic()), self._watch)

    def _end(self, caller: AcceptedConnection, why: str) -> None:
        _log.warning("%s: connections were ended that had proved nothing when %s", self._name, why)
        caller.end()


def _error_of(task: asyncio.Task[Any]) -> BaseException | None:
    """Return the error of a finished task, including a cancellation; None for a result."""
    try:
        return task.exception()
    except asyncio.CancelledError as cancelled:
        return cancelled
