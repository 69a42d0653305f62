"""Connections and managers of the standard library that send definitions of `__main__` by value.

Both ends are sockets of one machine. A process that gets a connection in a message fetches its descriptor from the
sender (`multiprocessing.resource_sharer`), so that none is inherited, and the kernel reports the end of the other side.
"""

from __future__ import annotations

from collections.abc import Iterable
from multiprocessing import connection, managers, reduction
from typing import Any

from . import synchronize
from .by_value import dumps
from .installation import LOCKS
from .keeper_connections import KeeperConnection
from .pipes import remote_pipe
from .places import spans_machines
from .pool import Pool
from .socket_ends import SocketEnd

SERIALIZER = "treadle"
"""The name under which managers find `Listener` and `Client`."""


class Connection(connection.Connection):
    """A connection."""

    def send(self, obj: Any) -> None:
        self.send_bytes(dumps(obj))


def _taken(found: Any) -> Connection:
    """Return a connection that takes the place of a standard one."""
    descriptor, found._handle = found.fileno(), None
    return Connection(descriptor, found.readable, found.writable)


def _reduced(found: Connection) -> Any:
    descriptor = reduction.DupFd(found.fileno())
    return _rebuilt, (descriptor, found.readable, found.writable)


def _rebuilt(descriptor: Any, readable: bool, writable: bool) -> Connection:
    return Connection(descriptor.detach(), readable, writable)


reduction.register(Connection, _reduced)


def pipe(duplex: bool = True) -> Any:
    if spans_machines():
        return remote_pipe(duplex)
    one, other = connection.Pipe(duplex)
    return _taken(one), _taken(other)


class Listener(connection.Listener):
    """A listener of a manager."""

    def accept(self) -> Any:
        return _taken(super().accept())


def client(address: Any, family: str | None = None, authkey: bytes | None = None) -> Connection:
    return _taken(connection.Client(address, family, authkey))


def wait(object_list: Iterable[Any], timeout: float | None = None) -> list[Any]:
    """Return the objects that are ready, as the function of the standard library.

    Items that a process sent before it died are ready with its sentinel, although our descriptors follow later.
    """
    objects: list[Any] = list(object_list)
    ready = connection.wait(objects, timeout)
    ours = [one for one in objects if isinstance(one, SocketEnd | KeeperConnection) and one not in ready]
    return ready + [one for one in ours if ready and one.poll()]


managers.listener_client[SERIALIZER] = Listener, client  # type: ignore[attr-defined]


class SyncManager(managers.SyncManager):
    """A manager. Its locks live at the keeper; its other objects live in a process that it starts, and end with it."""

    def __init__(
        self, address: Any = None, authkey: Any = None, serializer: str = SERIALIZER, ctx: Any = None, **others: Any
    ) -> None:
        super().__init__(address, authkey, serializer, ctx, **others)


for _name in LOCKS:
    setattr(SyncManager, _name, getattr(synchronize, _name))
SyncManager.register("Pool", Pool, managers.PoolProxy)  # type: ignore[attr-defined]
