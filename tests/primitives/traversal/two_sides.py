"""Two members known to a coordinator, each in a thread of its own, and the outcomes of their attempts."""

from __future__ import annotations

import secrets
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext
from typing import NamedTuple, TypeVar

from msgspec import Struct
from namespaces import Host
from primitives.wire.sides import receive

from treadle.primitives import wire
from treadle.primitives.coordinator.messages import Dial
from treadle.primitives.hole_punching import ANY, NoPath, PunchAttempt, Schedule, Traversal, open_path
from treadle.primitives.hole_punching.port_reuse import share_port
from treadle.primitives.wire import Connection, Identity

RUN, KEY = "run-1", bytes(range(32))
LONG = 60.0
"""Seconds in which expected events happen, also on a busy machine."""
PATIENT = Schedule(simultaneous=25.0, proof=25.0, challenge=25.0)
"""For attempts that must succeed, also on a busy machine."""
BRIEF = Schedule(simultaneous=0.4, each_way=0.3, proof=0.5, challenge=0.5)
"""For attempts that must fail at any speed of the clock."""


class Said(Struct, tag="said"):
    number: int


class Side(NamedTuple):
    """A member known to a coordinator."""

    member: str
    source: tuple[str, int]
    seen: tuple[str, int]
    """The source address seen by the coordinator."""
    host: Host | None = None


Sides = tuple[Side, Side]
T = TypeVar("T", socket.socket | NoPath, Connection | NoPath)


@contextmanager
def introduced(public: Host | None = None, left: Host | None = None, right: Host | None = None) -> Iterator[Sides]:
    """`left` and `right` have each sent hello to one server. These connections stay open in the meantime."""
    with ExitStack() as stack:
        with public.entered() if public else nullcontext():
            server = stack.enter_context(socket.create_server((public.address if public else "127.0.0.1", 0)))
        server.settimeout(LONG)
        yield _introduce(stack, server, "left", left), _introduce(stack, server, "right", right)


def _introduce(stack: ExitStack, server: socket.socket, member: str, host: Host | None) -> Side:
    with host.entered() if host else nullcontext():
        client = stack.enter_context(socket.socket())
    share_port(client)
    client.bind(ANY)
    client.settimeout(LONG)
    client.connect(server.getsockname())
    accepted, seen = server.accept()
    stack.enter_context(accepted)
    return Side(member, client.getsockname(), seen, host)


def attempt(side: Side, other: Side, token: bytes, schedule: Schedule, delay: float = 0.0) -> socket.socket | NoPath:
    """One side of an attempt, without `wire` on top. Blocking."""
    time.sleep(delay)
    now = time.monotonic()
    machine = Traversal(side.member, other.member, now, now + LONG, schedule)
    with side.host.entered() if side.host else nullcontext():
        try:
            return PunchAttempt(machine, token, side.source, other.seen).run()
        except NoPath as error:
            return error


def opened(
    side: Side,
    other: Side,
    token: bytes,
    *,
    schedule: Schedule = PATIENT,
    tls: Identity | None = None,
    key: bytes = KEY,
    delay: float = 0.0,
    patience: float = LONG,
) -> Connection | NoPath:
    """One side including `wire`. Blocking."""
    address = str(wire.Address("tls" if tls else "tcp", *other.seen))
    dial = Dial(other.member, address, token, delay)
    with side.host.entered() if side.host else nullcontext():
        try:
            return open_path(
                dial,
                side.member,
                side.source,
                RUN,
                key,
                time.monotonic() + patience,
                tls=tls,
                plain=True,
                schedule=schedule,
            )
        except NoPath as error:
            return error


@contextmanager
def together(*calls: Callable[[], T]) -> Iterator[list[T]]:
    """The results of concurrent calls. Connections are closed at the end."""
    with ThreadPoolExecutor(len(calls)) as pool:
        futures = [pool.submit(call) for call in calls]
        ends = [future.result(LONG) for future in futures]
    try:
        yield ends
    finally:
        for end in ends:
            if not isinstance(end, NoPath):
                end.close()


def new_token() -> bytes:
    return secrets.token_bytes(16)


def carries(one: Connection, other: Connection, size: int = 64 * 1024) -> None:
    """Send bytes both ways."""
    for number, (sender, receiver) in enumerate([(one, other), (other, one)]):
        data = secrets.token_bytes(size)
        with ThreadPoolExecutor(1) as pool:
            sent = pool.submit(sender.send, Said(number), data, deadline=time.monotonic() + LONG)
            said = receive(receiver, Said)
            sent.result(LONG)
        assert said == (Said(number), data)
