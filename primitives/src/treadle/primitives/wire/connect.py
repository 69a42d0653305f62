"""Set-up of connections for threads: dial, listen, accept, and authenticate before any other message."""

from __future__ import annotations

import contextlib
import functools
import socket
import threading
import time
from typing import TYPE_CHECKING, Any

from ..addresses import Address, parse
from .blocking_connection import Connection
from .errors import TimedOut, WireError
from .handshake import Handshake, KeyOf
from .transports import Plain

if TYPE_CHECKING:
    from .tls import Identity

_BACKLOG = 4096
"""Connections that wait to be accepted; the kernel may allow fewer."""
_IDLE, _PROBES, _INTERVAL = 30, 4, 10
"""Keepalive: idle seconds, number of probes, seconds between them. The kernel notices a vanished host after
about 70 s.
"""


def connect(
    address: str,
    run: str,
    key: bytes,
    *,
    deadline: float,
    source: tuple[str, int] | None = None,
) -> Connection:
    """Connect to the server at `address`; both sides prove that they hold the run's key.

    `source`: host and port to dial from. Raises UsageError for an invalid address (see `parse`), WireError when no
    server answers, and NotAuthentic.
    """
    target = parse(address)
    sock = _dial(target, deadline, source)
    return dialled(sock, run, key, deadline=deadline, tls=target.scheme == "tls", name=address)


def dialled(
    sock: socket.socket, run: str, key: bytes, *, deadline: float, tls: bool = False, name: str = ""
) -> Connection:
    """Run the client's side of the handshake over a connected socket, which the connection owns from now on.

    Raises WireError and NotAuthentic; then the socket is closed.
    """
    connection = _connection(sock, name, tls)
    certificate = connection.secure(deadline)
    connection.greet(Handshake.client(run, key, certificate), deadline)
    return connection


def listen(address: str) -> socket.socket:
    """Return a listening socket; port 0 and `unix:` take a free address (see `address_of`). Raises UsageError and
    WireError.
    """
    target = parse(address)
    family = socket.AF_INET6 if ":" in target.host else socket.AF_INET
    try:
        if target.scheme == "unix":
            return _listen_here(target.host)
        return socket.create_server(target[1:], family=family, backlog=_BACKLOG)
    except OSError as error:
        raise WireError(f"cannot listen at {address}: {error}", "Use another port, or 0 for any.") from error


def _listen_here(name: str) -> socket.socket:
    """Listen under the abstract name, or under a free one when it is empty (autobind, unix(7))."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.bind(_place(name) if name else "")
        sock.listen(_BACKLOG)
    except BaseException:
        sock.close()
        raise
    return sock


def _place(name: str) -> str:
    """The socket path of an abstract name."""
    return f"\0{name}"


def address_of(sock: socket.socket, *, tls: bool = False) -> str:
    """Return the address of a listening socket."""
    if sock.family == socket.AF_UNIX:
        return str(Address("unix", sock.getsockname()[1:].decode(), 0))
    host, port = sock.getsockname()[:2]
    return str(Address("tls" if tls else "tcp", host, port))


def accept(sock: socket.socket, key_of: KeyOf, *, deadline: float, tls: Identity | None = None) -> Connection:
    """Run the server's side of the handshake over an accepted socket, which the connection owns from now on.

    The client has proved to belong to the connection's `run`. Raises WireError and NotAuthentic; then the socket is
    closed.
    """
    connection = incoming(sock, tls=tls)
    welcome(connection, key_of, deadline=deadline, tls=tls)
    return connection


def incoming(sock: socket.socket, *, tls: Identity | None = None) -> Connection:
    """Return a connection before its handshake: the first half of `accept`, which does not block. Raises WireError."""
    return _connection(sock, "", tls is not None, tls)


def welcome(connection: Connection, key_of: KeyOf, *, deadline: float, tls: Identity | None = None) -> None:
    """The second half of `accept`. Raises WireError and NotAuthentic; then the connection is closed."""
    connection.secure(deadline)
    connection.greet(Handshake.server(key_of, tls.digest if tls else b""), deadline)


def prepare(sock: socket.socket) -> None:
    """Send small messages at once, and detect vanished hosts. Unix sockets need neither."""
    if sock.family == socket.AF_UNIX:
        return
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _IDLE)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _INTERVAL)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _PROBES)


def _dial(target: Address, deadline: float, source: tuple[str, int] | None) -> socket.socket:
    """Try each address of the host in turn, with an equal share of the remaining time."""
    error = OSError("no address")
    found = _resolved(target, deadline)
    for tried, (family, kind, protocol, _, place) in enumerate(found):
        seconds = (deadline - time.monotonic()) / (len(found) - tried)
        try:
            return _connected(socket.socket(family, kind, protocol), place, seconds, source)
        except OSError as failed:
            error = failed
    raise _failed(str(target), error) from error


def _connected(sock: socket.socket, place: Any, seconds: float, source: tuple[str, int] | None) -> socket.socket:
    """Connect the socket. Raises OSError; then the socket is closed."""
    try:
        if source is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            sock.bind(source)
        sock.settimeout(max(seconds, 0.001))
        sock.connect(place)
    except BaseException:
        sock.close()
        raise
    return sock


def _resolved(target: Address, deadline: float) -> list[Any]:
    """Return the host's addresses from getaddrinfo. It has no timeout, so names are resolved in a thread."""
    if target.scheme == "unix":
        return [(socket.AF_UNIX, socket.SOCK_STREAM, 0, "", _place(target.host))]
    ask = functools.partial(socket.getaddrinfo, target.host, target.port, type=socket.SOCK_STREAM)
    with contextlib.suppress(OSError, UnicodeError):
        return ask(flags=socket.AI_NUMERICHOST)
    said: list[list[Any] | Exception] = [TimeoutError("nobody said in time where that is")]

    def resolve() -> None:
        try:
            said.append(ask())
        except (OSError, UnicodeError) as unknown:  # UnicodeError: the text cannot be a host name
            said.append(unknown)

    resolving = threading.Thread(target=resolve, name="treadle-resolver", daemon=True)
    try:
        resolving.start()
        resolving.join(max(deadline - time.monotonic(), 0))
    except RuntimeError as error:  # too many threads
        said.append(error)
    answer = said[-1]
    if isinstance(answer, Exception):
        raise _failed(str(target), answer) from answer
    return answer


def _connection(sock: socket.socket, name: str, secure: bool, tls: Identity | None = None) -> Connection:
    """`tls`: the identity of a server; None for a client."""
    try:
        prepare(sock)
        if not secure:
            return Connection(sock, Plain(sock), name=name)
        from .tls import Encrypted, client_context

        sock.setblocking(False)
        sock.getpeername()  # raises if the other side is gone: then wrap_socket would lose the descriptor
        context = tls.context() if tls else client_context()
        wrapped = context.wrap_socket(sock, server_side=tls is not None, do_handshake_on_connect=False)
        return Connection(wrapped, Encrypted(wrapped), name=name)
    except OSError as error:
        sock.close()
        raise _failed(name, error) from error


def _failed(name: str, error: Exception) -> WireError:
    kind = TimedOut if isinstance(error, TimeoutError) else WireError
    return kind(f"no connection with {name or 'the other side'}: {error}", "Is it up, and reachable from here?")
