"""Serves a host's blocks to readers on other hosts: one thread for each connection, so that a slow reader delays no
other.
"""

from __future__ import annotations

import contextlib
import select
import socket
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..errors import TreadleError, UsageError
from ..log_rate_limit import limited_logger
from ..stores.shared_memory import HostFolder
from ..stores.store_errors import border
from ..wire import Connection, KeyOf, WireError, address_of, incoming, listen, parse, welcome
from ..wire.unauthenticated import Strangers, allowance
from .messages import REQUEST_LIMIT, Pull
from .responses import answer

if TYPE_CHECKING:
    from ..wire import Identity

_GREETING = 10.0
"""Seconds for the handshake."""
_IDLE = 120.0
"""Seconds after which a connection without requests is closed; its reader reconnects when needed."""
_PAUSE = 0.05
_log = limited_logger("treadle.listeners")
_ANYWHERE = ("0.0.0.0", "::")


class PeerServer:
    """Serves the blocks of a host folder, `<run>/<name>`, to every reader that holds the key of their run.

    Serves at most `connections` at once, each with less than 2 MiB of memory. A further caller displaces the connection
    that has been idle longest, or waits while all are busy. Unauthenticated callers are at most half of the
    connections: they displace each other first.
    """

    def __init__(
        self,
        host: HostFolder,
        key_of: KeyOf,
        address: str = "tcp://127.0.0.1:0",
        tls: Identity | None = None,
        *,
        connections: int = 256,
        forward: Callable[[Connection, Pull], None] | None = None,
    ) -> None:
        """Listen at once. `tls`: for `tls://`; None: an identity kept in the host folder.

        `forward` answers requests for blocks of another member (`Gateway.forward`); None: such requests end the
        connection.

        Raises UsageError for an invalid address (`tcp://` off loopback is refused) or one that cannot be dialled,
        WireError when the address is in use, and StoreError when there is no space for an identity.
        """
        target = parse(address)
        if target.host in _ANYWHERE:
            raise UsageError(f"{address} is no address to dial", "Name this host as the others reach it.")
        secure = target.scheme == "tls"
        self._host, self._key_of, self._forward = host, key_of, forward
        self._tls = tls or _own_identity(host) if secure else None
        self._listener = listen(address)
        self._listener.setblocking(False)
        self.address = address_of(self._listener, tls=secure)
        self._room = threading.Condition()
        self._threads: dict[Connection, threading.Thread] = {}
        self._limit = min(connections, allowance(connections, parts=4))
        self._strangers: Strangers[Connection] = Strangers(max(1, self._limit // 2), _GREETING)
        self._idle: OrderedDict[Connection, None] = OrderedDict()
        """The longest idle connection first."""
        self._displaced: set[Connection] = set()
        """Connections that are being closed to make room."""
        self._closing = False
        self._accepting = threading.Thread(target=self._accept, name="treadle-peers", daemon=True)
        self._accepting.start()

    @property
    def connections(self) -> int:
        """Number of open connections."""
        return len(self._threads)

    def close(self) -> None:
        """End every connection and thread. May be called again."""
        with self._room:
            self._closing = True
            self._room.notify_all()
            threads = list(self._threads.values())
            for connection in self._threads:
                connection.abort()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._accepting.join()
        self._listener.close()
        for thread in threads:
            thread.join()

    def __enter__(self) -> PeerServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- the accepting thread ----------

    def _accept(self) -> None:
        callers = select.poll()
        callers.register(self._listener, select.POLLIN)
        while not self._closing:
            callers.poll()
            if not self._make_room():
                return
            try:
                sock, _ = self._listener.accept()
            except BlockingIOError:
                continue  # the caller has disconnected
            except OSError as error:  # out of descriptors, or closing
                self._without_descriptors(error)
                continue
            with contextlib.suppress(WireError):
                self._start(incoming(sock, tls=self._tls))

    def _start(self, connection: Connection) -> None:
        thread = threading.Thread(target=self._serve, args=(connection,), name="treadle-peer", daemon=True)
        with self._room:
            if self._closing:
                connection.close()
                return
            try:
                thread.start()
            except RuntimeError:  # too many threads: the reader dials again
                connection.close()
            else:
                self._threads[connection] = thread
                self._strangers.add(connection, time.monotonic())

    def _make_room(self) -> bool:
        """Wait until one more connection is allowed; False when closing."""
        with self._room:
            while not self._closing:
                if len(self._strangers) >= self._strangers.most:
                    self._room.wait(self._displace())
                elif len(self._threads) < self._limit:
                    return True
                else:
                    self._room.wait(None if self._displaced else self._displace(idle=True))
            return False

    def _displace(self, *, idle: bool = False) -> float:
        """End a stranger past its grace time, or an idle reader with `idle`. Returns seconds to wait before the next
        call.
        """
        now = time.monotonic()
        found = self._strangers.past_grace(now)
        if found is not None:
            _log.warning("blocks at %s: connections were ended that had proved nothing when others came", self.address)
        elif idle:
            found = next(iter(self._idle), None)
        if found is None:
            return self._strangers.next_grace(now)
        self._idle.pop(found, None)
        self._displaced.add(found)
        found.abort()
        return 0.0

    def _without_descriptors(self, error: OSError) -> None:
        if self._closing:
            return
        _log.warning("blocks at %s: no connection can be accepted: %s", self.address, error.strerror)
        with self._room:
            if (oldest := self._strangers.oldest()) is not None:
                self._displaced.add(oldest)
                oldest.abort()
        time.sleep(_PAUSE)

    # -- the thread of a connection ----------

    def _serve(self, connection: Connection) -> None:
        try:
            welcome(connection, self._key_of, deadline=time.monotonic() + _GREETING, tls=self._tls)
            self._now_known(connection)
            request = _next_request(connection)
            while True:
                self._answer(connection, request)
                self._now_idle(connection)
                try:
                    request = _next_request(connection)
                finally:
                    with self._room:
                        self._idle.pop(connection, None)
        except (TreadleError, OSError):
            # a reader that left or never authenticated, or an unreadable file: the reader finds the connection closed
            pass
        finally:
            connection.close()
            with self._room:
                del self._threads[connection]
                self._strangers.remove(connection)
                self._displaced.discard(connection)
                self._room.notify_all()

    def _now_known(self, connection: Connection) -> None:
        with self._room:
            self._strangers.remove(connection)
            self._room.notify_all()

    def _answer(self, connection: Connection, request: Pull) -> None:
        if not request.member:
            answer(connection, request, self._host)
        elif self._forward is not None:
            self._forward(connection, request)
        else:
            raise WireError(f"{connection.name} asks for blocks of another member", "This host has no gateway.")

    def _now_idle(self, connection: Connection) -> None:
        """Mark as idle, only after its first answer: a reader that has just connected is about to send a request."""
        with self._room:
            self._idle[connection] = None
            if len(self._threads) >= self._limit:
                self._room.notify_all()  # this connection may be displaced now


def _next_request(connection: Connection) -> Pull:
    deadline = time.monotonic() + _IDLE
    request: Pull = connection.receive_head(Pull, deadline, head_limit=REQUEST_LIMIT)[0]
    return request


def _own_identity(host: HostFolder) -> Identity:
    from ..wire import tls_identity

    with border(host.url, "tls.pem"):
        return tls_identity(host.root)
