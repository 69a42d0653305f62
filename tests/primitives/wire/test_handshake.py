from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from primitives.wire.sides import KEY, RUN, key_of

from treadle.primitives.errors import InternalError
from treadle.primitives.wire import Handshake, NotAuthentic
from treadle.primitives.wire.handshake import MESSAGE_LIMIT


def converse(client: Handshake, server: Handshake, change: dict[int, int] | None = None) -> list[bytes]:
    """Both sides run to their end. `change` flips bits: number of the message -> number of the bit, from the end."""
    said = [client.opening()]
    while said[-1]:
        message, bit = bytearray(said[-1]), (change or {}).get(len(said) - 1)
        if bit is not None:
            message[-1 - bit // 8 % len(message)] ^= 1 << bit % 8
        said.append((server if len(said) % 2 else client).receive(bytes(message)))
    return said


def test_holders_of_one_key_come_to_trust_each_other() -> None:
    client, server = Handshake.client(RUN, KEY), Handshake.server(key_of)
    said = converse(client, server)
    assert client.done
    assert server.done
    assert server.run == RUN
    assert all(len(message) <= MESSAGE_LIMIT for message in said)
    assert not any(KEY in message for message in said)


def test_handshake_succeeds_when_both_sides_see_the_same_certificates() -> None:
    client, server = Handshake.client(RUN, KEY, b"c" * 32), Handshake.server(key_of, b"c" * 32)
    converse(client, server)
    assert client.done
    assert server.done


@pytest.mark.parametrize(
    ("key", "seen", "shown"),
    [
        pytest.param(bytes(32), b"", b"", id="another key"),
        pytest.param(KEY, b"m" * 32, b"s" * 32, id="another certificate in between"),
        pytest.param(KEY, b"", b"s" * 32, id="encryption taken away"),
    ],
)
def test_a_client_sees_that_the_server_is_not_the_one(key: bytes, seen: bytes, shown: bytes) -> None:
    client, server = Handshake.client(RUN, key, seen), Handshake.server(key_of, shown)
    with pytest.raises(NotAuthentic, match="does not hold"):
        converse(client, server)
    assert not client.trusted
    assert not server.trusted


@given(st.integers(0, 3), st.integers(0, 255))
def test_handshake_fails_on_one_side_at_least_when_one_bit_is_wrong(number: int, bit: int) -> None:
    client, server = Handshake.client(RUN, KEY), Handshake.server(key_of)
    with pytest.raises(NotAuthentic):
        converse(client, server, {number: bit})
    assert not (client.done and server.done)
    assert server.done == (number == 3), "only a changed welcome comes after the server was convinced"


def test_a_proof_is_good_for_one_connection() -> None:
    said = converse(Handshake.client(RUN, KEY), Handshake.server(key_of))
    server = Handshake.server(key_of)
    server.receive(said[0])
    with pytest.raises(NotAuthentic, match="does not hold"):
        server.receive(said[2])


def test_a_servers_answer_sent_back_proves_nothing() -> None:
    server = Handshake.server(key_of)
    challenge = server.receive(Handshake.client(RUN, KEY).opening())
    with pytest.raises(NotAuthentic):
        server.receive(b"P" + challenge[-32:])
    assert not server.trusted


def test_the_key_of_one_run_opens_no_other() -> None:
    keys = {"r1": b"1" * 32, "r2": b"2" * 32}
    with pytest.raises(NotAuthentic):
        converse(Handshake.client("r2", keys["r1"]), Handshake.server(keys.get))


def test_a_server_says_that_it_does_not_know_a_run() -> None:
    client, server = Handshake.client("elsewhere", KEY), Handshake.server(key_of)
    with pytest.raises(NotAuthentic, match="'elsewhere', which is not served"):
        server.receive(client.opening())
    with pytest.raises(NotAuthentic, match="does not serve run elsewhere"):
        client.receive(server.last_words)


@given(st.binary(max_size=200))
def test_malformed_handshake_is_refused(data: bytes) -> None:
    for side in (Handshake.client(RUN, KEY), Handshake.server(key_of)):
        with pytest.raises(NotAuthentic):
            side.receive(data)


def test_a_finished_handshake_takes_nothing_more() -> None:
    client, server = Handshake.client(RUN, KEY), Handshake.server(key_of)
    converse(client, server)
    with pytest.raises(InternalError):
        server.receive(b"P" + bytes(32))
