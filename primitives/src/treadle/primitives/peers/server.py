"""A host's blocks for readers on other hosts: one thread for each connection, so that none waits for a slow one."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections import OrderedDict
from typing import TYPE_CHECKING

from ..errors import TreadleError
from ..host import HostFolder
from ..wire import Connection, KeyOf, WireError, address_of, incoming, listen, parse, welcome
from .messages import REQUEST_LIMIT, Pull
from .serving import answer

if TYPE_CHECKING:
    from ..wire import Identity

_GREETING = 10.0
"""Seconds for the handshake."""
_IDLE = 120.0
"""Seconds after which a connection without requests is closed; its reader connects again when it needs to."""


class PeerServer:
    """Serves the blocks of a host folder, `<run>/<name>`, to whoever holds the key of their run.

    At most `connections` at once, each with less than 2 MiB of memory here. One more displaces the one that has
    asked for nothing for longest, and waits while all are being served.
    """

    def __init__(
        self,
        host: HostFolder,
        key_of: KeyOf,
        address: str = "tcp://127.0.0.1:0",
        tls: Identity | None = None,
        *,
        connections: int = 256,
        plain: bool = False,
    ) -> None:
        """Listen at once. `tls`: for `tls://`; None: an identity kept in the host folder.

        Raises UsageError for an address that cannot be (`tcp://` off loopback is refused unless `plain`), WireError
        when it is taken.
        """
        secure = parse(address, plain=plain).scheme == "tls"
        self._host, self._key_of = host, key_of
        self._tls = tls or _own_identity(host) if secure else None
        self._listener = listen(address, plain=plain)
        self.address = address_of(self._listener, tls=secure)
        self._room = threading.Condition()
        self._threads: dict[Connection, threading.Thread] = {}
        self._idle: OrderedDict[Connection, None] = OrderedDict()
        """Longest idle first."""
        self._limit = connections
        self._closing = False
        self._accepting = threading.Thread(target=self._accept, name="treadle-peers", daemon=True)
        self._accepting.start()

    @property
    def connections(self) -> int:
        """How many are open."""
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
        while self._wait_room():
            try:
                sock, _ = self._listener.accept()
            except OSError:
                if self._closing:
                    return
                time.sleep(0.05)  # out of descriptors: until some are given back
                continue
            with contextlib.suppress(WireError):
                self._start(incoming(sock, tls=self._tls))

    def _start(self, connection: Connection) -> None:
        thread = threading.Thread(target=self._serve, args=(connection,), name="treadle-peer", daemon=True)
        with self._room:
            if self._closing:
                connection.close()
                return
            self._threads[connection] = thread
            thread.start()

    def _wait_room(self) -> bool:
        """Whether to accept one more; False when closing."""
        with self._room:
            while not self._closing and len(self._threads) >= self._limit:
                if self._idle:
                    self._idle.popitem(last=False)[0].abort()
                self._room.wait()
            return not self._closing

    # -- the thread of a connection ----------

    def _serve(self, connection: Connection) -> None:
        try:
            welcome(connection, self._key_of, deadline=time.monotonic() + _GREETING, tls=self._tls)
            while True:
                answer(connection, self._next_request(connection), self._host)
        except (TreadleError, OSError):
            pass  # a reader that left or is none, a file that cannot be read: the reader finds the connection closed
        finally:
            connection.close()
            with self._room:
                self._idle.pop(connection, None)
                del self._threads[connection]
                self._room.notify_all()

    def _next_request(self, connection: Connection) -> Pull:
        with self._room:
            self._idle[connection] = None
            if len(self._threads) >= self._limit:
                self._room.notify_all()  # this one may be displaced now
        try:
            deadline = time.monotonic() + _IDLE
            request: Pull = connection.receive_head(Pull, deadline, head_limit=REQUEST_LIMIT, tail_limit=0)[0]
            return request
        finally:
            with self._room:
                self._idle.pop(connection, None)


def _own_identity(host: HostFolder) -> Identity:
    from ..wire import tls_identity

    return tls_identity(host.root)
