"""Two sides of a connection in one process, and their messages."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from msgspec import Struct

from treadle.primitives import wire

T = TypeVar("T")
RUN, KEY = "run-1", bytes(range(32))
GENEROUS = 60.0
"""Seconds for calls that succeed on the slowest machine."""


class Said(Struct, tag="said"):
    number: int
    text: str = ""


class Other(Struct, tag="other"):
    words: list[str]


def key_of(run: str) -> bytes | None:
    return KEY if run == RUN else None


def soon() -> float:
    return time.monotonic() + GENEROUS


def at_once() -> float:
    """A deadline for calls that fail without an answer."""
    return time.monotonic() + 0.2


@contextlib.contextmanager
def serving(behave: Callable[[wire.Connection], None], tls: wire.Identity | None = None, at: str = "") -> Iterator[str]:
    """The address of a server that calls `behave` with each connection in turn, and then closes it."""
    listener = wire.listen(at or f"{'tls' if tls else 'tcp'}://127.0.0.1:0")
    closing = threading.Event()

    def work() -> None:
        while not closing.is_set():
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            with (
                contextlib.suppress(wire.WireError, wire.NotAuthentic),
                wire.accept(sock, key_of, deadline=soon(), tls=tls) as connection,
            ):
                behave(connection)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield wire.address_of(listener, tls=tls is not None)
    finally:
        closing.set()
        with contextlib.suppress(OSError):
            listener.shutdown(2)
        thread.join()
        listener.close()


def echo(connection: wire.Connection) -> None:
    """Send back all messages until the other side leaves."""
    while True:
        message, tail = receive(connection, Said)
        connection.send(message, tail, deadline=soon())


def dial(address: str) -> wire.Connection:
    return wire.connect(address, RUN, KEY, deadline=soon())


def until(event: threading.Event) -> Callable[[wire.Connection], None]:
    """Neither read nor send before the event."""

    def wait(_: wire.Connection) -> None:
        event.wait(GENEROUS)

    return wait


def receive(connection: wire.Connection, kind: type[T], deadline: float | None = None) -> tuple[T, bytes]:
    """The next message and its tail."""
    deadline = soon() if deadline is None else deadline
    message, length = connection.receive_head(kind, deadline, tail_limit=1 << 30)
    tail = bytearray(length)
    connection.receive_into(memoryview(tail), deadline)
    return message, bytes(tail)


def trip(address: str, deadline: float, *, times: int = 1, size: int = 3000) -> None:
    """Connect, and have messages echoed. Raises on any failure, AssertionError when they come back different."""
    with wire.connect(address, RUN, KEY, deadline=deadline) as connection:
        for number in range(times):
            connection.send(Said(number), bytes(size), deadline=deadline)
            assert receive(connection, Said, deadline) == (Said(number), bytes(size))
