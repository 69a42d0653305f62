from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties.profiles import examples

from treadle.primitives.hole_punching.path_probe import HEAD_BYTES, STREAM_BYTES, NotProved, Proof, named_by, token_name

TOKEN = b"t" * 16
RECEIPT = 32


def exchange(
    leader: Proof,
    follower: Proof,
    chunks: Callable[[], int] = lambda: 1 << 20,
    damage: Callable[[bytes], bytes] = bytes,
) -> tuple[int, int]:
    """Carry bytes in chunks until both sides are silent. Bytes to the follower may be damaged. Returns the bytes sent
    by each."""
    to_follower, to_leader = leader.head, follower.head
    sent = [0, 0]
    while (to_follower and not follower.proved) or (to_leader and not leader.proved):
        size = min(chunks(), follower.wanted)
        taken, to_follower = to_follower[:size], to_follower[size:]
        sent[0] += len(taken)
        to_leader += follower.feed(damage(taken))
        size = min(chunks(), leader.wanted)
        taken, to_leader = to_leader[:size], to_leader[size:]
        sent[1] += len(taken)
        to_follower += leader.feed(taken)
        if leader.proved and not to_follower and not follower.proved:
            to_follower += leader.choose()
    return sent[0], sent[1]


@examples(60)
@given(st.data())
def test_holders_of_one_token_prove_it_in_any_chunks(data: st.DataObject) -> None:
    leader, follower = Proof(TOKEN, True), Proof(TOKEN, False)
    sizes = st.sampled_from([1, 7, 1448, 4096, 65536, 1 << 20])
    size = data.draw(st.lists(sizes, min_size=1, max_size=4))
    rest = iter(size)
    sent = exchange(leader, follower, lambda: next(rest, 65536))
    assert leader.proved
    assert follower.proved
    assert sent == (HEAD_BYTES + STREAM_BYTES + RECEIPT + 32, HEAD_BYTES + STREAM_BYTES + RECEIPT)


def test_the_follower_waits_for_the_leaders_choice() -> None:
    leader, follower = Proof(TOKEN, True), Proof(TOKEN, False)
    to_follower = leader.feed(follower.head)
    to_leader = follower.feed(leader.head)
    to_follower += leader.feed(to_leader)
    leader.feed(follower.feed(to_follower))
    assert leader.proved
    assert not follower.proved
    assert follower.feed(leader.choose()) == b""
    assert follower.proved


def test_another_token_is_refused_at_its_name() -> None:
    with pytest.raises(NotProved, match="does not know its token"):
        Proof(TOKEN, True).feed(Proof(b"u" * 16, False).head)


def test_token_is_never_sent() -> None:
    leader = Proof(TOKEN, True)
    assert named_by(leader.head) == token_name(TOKEN)
    assert TOKEN not in leader.head + leader.feed(Proof(TOKEN, False).head) + leader.choose()


def test_reflected_proof_is_refused() -> None:
    proof = Proof(TOKEN, True)
    echo = proof.feed(proof.head)
    with pytest.raises(NotProved, match="does not hold its token"):
        proof.feed(echo)


def test_replayed_proof_is_refused() -> None:
    first, recorded = Proof(TOKEN, True), Proof(TOKEN, False)
    answer = recorded.feed(first.head)
    again = Proof(TOKEN, True)
    again.feed(recorded.head)
    with pytest.raises(NotProved):
        again.feed(answer)


@examples(100)
@given(place=st.integers(0, HEAD_BYTES - 17) | st.integers(HEAD_BYTES, HEAD_BYTES + STREAM_BYTES + RECEIPT + 31))
def test_a_changed_byte_is_found(place: int) -> None:
    """Except the nonce: another nonce means another caller, whose stream is wrong."""
    passed = 0

    def damage(data: bytes) -> bytes:
        nonlocal passed
        at, passed = place - passed, passed + len(data)
        return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :] if 0 <= at < len(data) else data

    with pytest.raises(NotProved):
        exchange(Proof(TOKEN, True), Proof(TOKEN, False), damage=damage)


def test_path_that_drops_long_messages_is_not_proved() -> None:
    leader, follower = Proof(TOKEN, True), Proof(TOKEN, False)
    stream = follower.feed(leader.head)
    leader.feed(follower.head)
    leader.feed(stream[:-1])
    assert not leader.proved
    assert leader.wanted == 1


def test_no_more_is_read_than_belongs_to_the_proof() -> None:
    leader, follower = Proof(TOKEN, True), Proof(TOKEN, False)
    to_leader = follower.head + follower.feed(leader.head)
    to_follower = leader.feed(to_leader)
    to_leader = follower.feed(to_follower)
    with pytest.raises(NotProved, match="more came"):
        leader.feed(to_leader + b"x")
