"""Two sides of one attempt, each in a thread of its own: what became of both."""

from __future__ import annotations

import secrets
import socket
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext
from typing import NamedTuple

from namespaces import Host

from treadle.primitives.traversal import Attempt, NoPath, Schedule, Traversal, share_port

LONG = 30.0
"""Seconds in which what should happen does, also on a busy machine."""


class Side(NamedTuple):
    """A member that spoke to a coordinator."""

    member: str
    source: tuple[str, int]
    seen: tuple[str, int]
    """The source as the coordinator saw it."""
    host: Host | None = None


class Ends(NamedTuple):
    """What each side came to: a socket or a NoPath."""

    left: socket.socket | NoPath
    right: socket.socket | NoPath


@contextmanager
def introduced(public: Host | None = None, left: Host | None = None, right: Host | None = None) -> Iterator[list[Side]]:
    """`left` and `right` have each said hello to one server; these connections stay open meanwhile."""
    with ExitStack() as stack:
        with public.entered() if public else nullcontext():
            server = stack.enter_context(socket.create_server((public.address if public else "127.0.0.1", 0)))
        server.settimeout(LONG)
        yield [_introduce(stack, server, name, host) for name, host in (("left", left), ("right", right))]


def _introduce(stack: ExitStack, server: socket.socket, member: str, host: Host | None) -> Side:
    with host.entered() if host else nullcontext():
        client = stack.enter_context(socket.create_connection(server.getsockname(), LONG))
    share_port(client)
    accepted, seen = server.accept()
    stack.enter_context(accepted)
    return Side(member, client.getsockname(), seen, host)


def attempt(side: Side, other: Side, token: bytes, schedule: Schedule, delay: float = 0.0) -> socket.socket | NoPath:
    """One side; blocks."""
    time.sleep(delay)
    now = time.monotonic()
    machine = Traversal(side.member, other.member, now, now + LONG, schedule)
    with side.host.entered() if side.host else nullcontext():
        try:
            return Attempt(machine, token, side.source, other.seen).run()
        except NoPath as error:
            return error


@contextmanager
def both(
    sides: list[Side],
    tokens: tuple[bytes, bytes] | None = None,
    schedule: Schedule = Schedule(),
    delay: float = 0.0,
) -> Iterator[Ends]:
    """Both sides attempt, the right one `delay` seconds later; sockets are closed at the end."""
    left, right = sides
    tokens = tokens or (secrets.token_bytes(16),) * 2
    with ThreadPoolExecutor(2) as pool:
        futures: list[Future[socket.socket | NoPath]] = [
            pool.submit(attempt, left, right, tokens[0], schedule),
            pool.submit(attempt, right, left, tokens[1], schedule, delay),
        ]
        ends = Ends(*[future.result(LONG) for future in futures])
    try:
        yield ends
    finally:
        for end in ends:
            if isinstance(end, socket.socket):
                end.close()
