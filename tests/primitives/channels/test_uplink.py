"""Bytes from a coordinator that are not a message, or not a member's letter, never reach a user's function."""

from __future__ import annotations

import contextlib

import pytest
from primitives.channels.uplinks import uplink
from primitives.wire.sides import KEY, RUN, serving, soon

from treadle.primitives import wire
from treadle.primitives.channels.io.peer_routes import Roads
from treadle.primitives.channels.io.socket_loop import SocketLoop
from treadle.primitives.channels.messages import Letter, Message, RoundDone
from treadle.primitives.coordinator.messages import Counted, FromMember, Hello, ToMember
from treadle.primitives.wire.message_codec import encode_head

NO_MESSAGES = [b"\xc1", b"\x81\xa4type\xa4view", b"\x82\xa4type\xa5alive\xa1x" + b"\x91" * 100_000]
IDS = ["no MessagePack", "a part is missing", "too deep"]


@pytest.mark.parametrize("nonsense", NO_MESSAGES, ids=IDS)
def test_malformed_coordinator_message_costs_the_connection_only(nonsense: bytes) -> None:
    introductions: list[FromMember] = []
    heard: list[ToMember] = []

    def coordinate(connection: wire.Connection) -> None:
        introductions.append(connection.receive_head(FromMember, soon())[0])
        said = nonsense if len(introductions) == 1 else encode_head(Counted("c", 1, 2))
        connection.send_frame(said, deadline=soon())
        with contextlib.suppress(wire.WireError):
            connection.receive_head(FromMember, soon())

    with serving(coordinate) as address, uplink(address, heard.append, [Hello("g/0.00", "")]) as (loop, one):
        loop.do(one.begin)
        loop.wait(lambda: heard or None, soon())
    assert heard == [Counted("c", 1, 2)]
    assert introductions == [Hello("g/0.00", "")] * 2


@pytest.mark.parametrize("nonsense", NO_MESSAGES, ids=IDS)
def test_a_relayed_letter_that_is_none_is_passed_over(nonsense: bytes) -> None:
    received: list[tuple[str, Message]] = []
    loop = SocketLoop()
    roads = Roads(
        loop, "g/0.00", RUN, KEY, lambda *_: None, lambda *letter: received.append(letter), reach=lambda _: None
    )
    done = RoundDone("c", 1, 1)
    try:
        for body in (nonsense, encode_head(Letter(1, 0, done))):
            loop.do(lambda body=body: roads.from_relay("g/1.00", body))  # type: ignore[misc]
    finally:
        loop.close()
    assert received == [("g/1.00", done)]


def test_gang_member_keeps_fewer_strangers_when_few_descriptors_are_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("treadle.primitives.wire.unauthenticated.resource.getrlimit", lambda _: (128, 128))
    loop = SocketLoop()
    try:
        roads = Roads(loop, "g/0.00", RUN, KEY, lambda *_: None, lambda *_: None, reach=lambda _: None)
    finally:
        loop.close()
    assert roads._strangers.most == 128 // 8  # private: the cap has no other sign
