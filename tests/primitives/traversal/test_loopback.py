"""Attempts over real sockets without address translation."""

from __future__ import annotations

import errno
import re
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from primitives.traversal.two_sides import (
    BRIEF,
    KEY,
    LONG,
    PATIENT,
    Side,
    Sides,
    attempt,
    carries,
    introduced,
    new_token,
    opened,
    together,
)

from treadle.primitives.coordinator.messages import Dial
from treadle.primitives.errors import UsageError
from treadle.primitives.hole_punching import NoPath, open_path
from treadle.primitives.hole_punching.path_probe import HEAD_BYTES, Proof, named_by, token_name
from treadle.primitives.wire import Connection, Identity


@pytest.fixture
def sides() -> Iterator[Sides]:
    with introduced() as sides:
        yield sides


def test_both_sides_get_the_two_ends_of_one_connection(sides: Sides) -> None:
    left, right = sides
    token = new_token()
    calls = [partial(attempt, one, other, token, PATIENT) for one, other in ((left, right), (right, left))]
    with together(*calls) as (one, other):
        assert isinstance(one, socket.socket)
        assert isinstance(other, socket.socket)
        assert one.getsockname() == other.getpeername() == left.source
        assert other.getsockname() == one.getpeername() == right.source


def test_attempt_without_a_free_descriptor_finds_no_path(sides: Sides, monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left() -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(socket, "socketpair", none_left)
    found = opened(*sides, new_token(), schedule=BRIEF)
    assert isinstance(found, NoPath)
    assert "Too many open files" in found.message


@pytest.mark.parametrize("encrypted", [False, True])
def test_a_path_is_a_connection_of_wire(sides: Sides, encrypted: bool, request: pytest.FixtureRequest) -> None:
    identity: Identity | None = request.getfixturevalue("identity") if encrypted else None
    left, right = sides
    token = new_token()
    with together(
        partial(opened, left, right, token, tls=identity), partial(opened, right, left, token, tls=identity)
    ) as (one, other):
        assert isinstance(one, Connection)
        assert isinstance(other, Connection)
        carries(one, other, 1 << 20)


def test_one_member_has_many_attempts_from_one_port(sides: Sides) -> None:
    """Their listeners share the port too, so callers are passed to the right attempt."""
    centre = sides[0]
    with introduced() as more, introduced() as others:
        members = [
            Side(f"member-{number}", side.source, side.seen) for number, side in enumerate((*more, *others, sides[1]))
        ]
        calls: list[Callable[[], socket.socket | NoPath]] = []
        for member in members:
            token = new_token()
            calls += [
                partial(attempt, centre, member, token, PATIENT),
                partial(attempt, member, centre, token, PATIENT),
            ]
        with together(*calls) as ends:
            assert [end for end in ends if isinstance(end, NoPath)] == []


def test_caller_finds_its_attempt_through_every_listener(sides: Sides) -> None:
    """The kernel gives the callers of a shared port to any of its listening sockets."""
    centre, other = sides
    tokens = [new_token() for _ in range(3)]

    def call() -> None:
        end = time.monotonic() + LONG
        while not all(_answers(centre.source, token) for token in tokens):
            assert time.monotonic() < end, "not all attempts have begun"
        assert all(_answers(centre.source, token) for token in tokens * 5)
        for token in tokens:
            _prove(centre.source, token)

    nowhere = other._replace(seen=("127.0.0.1", 1))
    calls = [partial(attempt, centre, nowhere, token, PATIENT) for token in tokens]
    with ThreadPoolExecutor(1) as pool:
        called = pool.submit(call)
        with together(*calls) as ends:
            called.result(LONG)
            assert [end for end in ends if isinstance(end, NoPath)] == []


def _answers(address: tuple[str, int], token: bytes) -> bool:
    """Returns whether a caller with this token reaches its attempt."""
    with _call(address) as caller:
        caller.sendall(Proof(token, leads=False).head)
        try:
            return named_by(caller.recv(HEAD_BYTES, socket.MSG_WAITALL)) == token_name(token)
        except ConnectionResetError:
            return False


def _prove(address: tuple[str, int], token: bytes) -> None:
    """Be the follower, with a waiting socket."""
    proof = Proof(token, leads=False)
    with _call(address) as caller:
        caller.sendall(proof.head)
        while not proof.proved:
            caller.sendall(proof.feed(caller.recv(proof.wanted)))


def test_a_side_that_waits_for_the_delay_is_in_time(sides: Sides) -> None:
    left, right = sides
    token = new_token()
    with together(
        partial(opened, left, right, token, delay=0.3), partial(opened, right, left, token, delay=0.1)
    ) as ends:
        assert all(isinstance(end, Connection) for end in ends)


def test_another_token_is_refused(sides: Sides) -> None:
    """They connect without success. With one token, from the same ports, they are one connection."""
    left, right = sides
    with together(
        partial(attempt, left, right, new_token(), BRIEF), partial(attempt, right, left, new_token(), BRIEF)
    ) as ends:
        assert all(isinstance(end, NoPath) for end in ends)
        assert any(re.search(r"[1-9]\d* connections", str(end)) for end in ends)
    token = new_token()
    with together(partial(attempt, left, right, token, PATIENT), partial(attempt, right, left, token, PATIENT)) as ends:
        assert [end for end in ends if isinstance(end, NoPath)] == []


def test_a_holder_of_the_token_without_the_runs_key_is_refused(sides: Sides) -> None:
    left, right = sides
    token = new_token()
    with together(partial(opened, left, right, token), partial(opened, right, left, token, key=bytes(32))) as ends:
        assert all(isinstance(end, NoPath) and "led nowhere" in str(end) for end in ends)


def test_attempt_without_a_peer_ends_within_the_bound(sides: Sides) -> None:
    started = time.monotonic()
    end = attempt(*sides, new_token(), BRIEF)
    assert isinstance(end, NoPath)
    assert "Connection refused" in str(end)
    assert time.monotonic() - started >= 0.9


def test_the_deadline_is_kept(sides: Sides) -> None:
    assert isinstance(opened(*sides, new_token(), patience=0.2), NoPath)
    assert isinstance(opened(*sides, new_token(), patience=-1), NoPath)


def test_silent_strangers_do_not_hinder_an_attempt(sides: Sides) -> None:
    """They fill the listener of one side before the other side starts."""
    left, right = sides
    token = new_token()

    def besieged() -> socket.socket | NoPath:
        strangers = [_call(left.source) for _ in range(12)]
        try:
            return attempt(right, left, token, PATIENT)
        finally:
            for stranger in strangers:
                stranger.close()

    with together(partial(attempt, left, right, token, PATIENT), besieged) as ends:
        assert [end for end in ends if isinstance(end, NoPath)] == []


def _call(address: tuple[str, int]) -> socket.socket:
    """A call by a stranger, once a listener exists. A listener resets its waiting calls when it closes."""
    end = time.monotonic() + LONG
    while True:
        try:
            return socket.create_connection(address, LONG)
        except (ConnectionRefusedError, ConnectionResetError):
            assert time.monotonic() < end
            time.sleep(0.01)


@pytest.mark.parametrize(
    ("dial", "hint"),
    [
        (Dial("me", "tcp://127.0.0.1:1", b"token"), "cannot dial itself"),
        (Dial("left", "tcp://127.0.0.1:1", b""), "has no token"),
        (Dial("left", "tls://127.0.0.1:1", b"token"), "no TLS identity"),
        (Dial("left", "tcp://192.0.2.1:1", b"token"), "not be encrypted"),
        (Dial("left", "udp://127.0.0.1:1", b"token"), "not an address"),
    ],
)
def test_invalid_candidates_are_refused_before_dialling(dial: Dial, hint: str) -> None:
    with pytest.raises(UsageError, match=hint):
        open_path(dial, "me", ("127.0.0.1", 0), "run", KEY, time.monotonic() + LONG)
