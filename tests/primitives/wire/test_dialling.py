"""From an address to a connected socket."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from primitives.wire.sides import GENEROUS, KEY, RUN, at_once, echo, serving, soon, trip

from treadle.primitives import wire

Answers = Callable[[Callable[[], list[Any]]], None]


@pytest.fixture
def resolver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Answers]:
    """Replaces name resolution of the host `somewhere` by a function, and waits for its threads."""
    known = socket.getaddrinfo

    def answers(say: Callable[[], list[Any]]) -> None:
        def resolve(host: str, *about: Any, **how: Any) -> list[Any]:
            if host == "somewhere" and not how.get("flags"):
                return say()
            return known(host, *about, **how)

        monkeypatch.setattr(socket, "getaddrinfo", resolve)

    yield answers
    for thread in threading.enumerate():
        if thread.name == "treadle-resolver":
            thread.join()


def test_unresolvable_name_does_not_extend_the_deadline(resolver: Answers) -> None:
    over = threading.Event()

    def later() -> list[Any]:
        over.wait(GENEROUS / 10)
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    resolver(later)
    with pytest.raises(wire.TimedOut, match="tls://somewhere:1"):
        wire.connect("tls://somewhere:1", RUN, KEY, deadline=at_once())
    over.set()


def test_one_address_of_a_host_that_is_silent_leaves_time_for_the_next(
    identity: wire.Identity, resolver: Answers
) -> None:
    with serving(echo, identity) as address, socket.socket() as silent, socket.socket() as waiting:
        silent.bind(("127.0.0.1", 0))
        silent.listen(0)
        waiting.connect(silent.getsockname())  # it is not accepted, and fills the queue
        places = [silent.getsockname(), wire.parse(address)[1:]]
        resolver(lambda: [(socket.AF_INET, socket.SOCK_STREAM, 6, "", place) for place in places])
        trip("tls://somewhere:1", time.monotonic() + 6)


def test_an_address_of_a_kind_that_is_not_known_here_is_passed_over(identity: wire.Identity, resolver: Answers) -> None:
    with serving(echo, identity) as address:
        place = wire.parse(address)[1:]
        families = [socket.AF_IPX, socket.AF_INET]
        resolver(lambda: [(family, socket.SOCK_STREAM, 6, "", place) for family in families])
        trip("tls://somewhere:1", soon())


def test_processes_of_one_host_meet_under_generated_names() -> None:
    with serving(echo, at="unix:") as one, serving(echo, at="unix:") as other:
        assert one.startswith("unix:")
        assert one != other
        for address in (one, other, one):
            trip(address, soon(), times=2, size=1 << 20)


def test_a_name_that_is_taken_is_an_error_until_its_listener_is_gone() -> None:
    with serving(echo, at="unix:") as address, pytest.raises(wire.WireError, match=f"cannot listen at {address}"):
        wire.listen(address)
    with pytest.raises(wire.WireError, match=f"no connection with {address}"):
        wire.connect(address, RUN, KEY, deadline=soon())
    with serving(echo, at=address) as again:
        assert again == address
        trip(again, soon())
