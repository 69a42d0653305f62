"""Several sockets on one local port: the connection to the coordinator, a dial to each member, and listeners."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from typing import NamedTuple, Protocol

LISTEN_BACKLOG = 16


Endpoint = tuple[str, int]
"""Host and port."""
ANY: Endpoint = ("", 0)
"""Bind a socket to this before connecting: it gets a port that no other socket has."""


def share_port(sock: socket.socket) -> None:
    """Let other sockets of this user share the local port; every one of them must allow it.

    Call it before the socket is bound. The connection to the coordinator must also be bound (to `ANY`) before it is
    connected. Otherwise the kernel may choose a port that another process's connection already has without sharing.
    """
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)


def bound(source: Endpoint) -> socket.socket:
    """Return a new non-blocking TCP socket with this local address. Raises OSError."""
    sock = socket.socket(socket.AF_INET6 if ":" in source[0] else socket.AF_INET, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        share_port(sock)
        sock.bind(source)
    except OSError:
        sock.close()
        raise
    return sock


def listening(source: Endpoint) -> socket.socket:
    """Return a listening socket with this local address. Raises OSError."""
    sock = bound(source)
    try:
        sock.listen(LISTEN_BACKLOG)
    except OSError:
        sock.close()
        raise
    return sock


def abort(sock: socket.socket) -> None:
    """Close with a reset: the pair of addresses is free for the next dial at once, not after a minute (TIME_WAIT)."""
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


class Guest(NamedTuple):
    """A connection accepted on a shared port, and the head of its proof."""

    sock: socket.socket
    head: bytes


class Hall(Protocol):
    """Receives the guests of one attempt."""

    def welcome(self, guest: Guest) -> None:
        """Called from another thread."""


class Lobby:
    """The attempts of one process. Listeners on one port share its callers, so each attempt finds a caller's target
    here.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._halls: dict[bytes, Hall] = {}

    def open(self, name: bytes, hall: Hall) -> None:
        with self._lock:
            self._halls[name] = hall

    def shut(self, name: bytes) -> None:
        """Accept no more guests under this name."""
        with self._lock:
            self._halls.pop(name, None)

    def pass_on(self, name: bytes, guest: Guest) -> bool:
        """Give the guest to the attempt of this name; returns whether there is one."""
        with self._lock:
            hall = self._halls.get(name)
            if hall is not None:
                hall.welcome(guest)
            return hall is not None


LOBBY = Lobby()
