from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.primitives.wire import Decoder, WireError, encode
from treadle.primitives.wire.framing import LENGTHS

sizes = st.one_of(st.integers(0, 100), st.sampled_from([16_371, 65_524, 65_536, 70_000, 200_001]))


def some(size: int, seed: int) -> bytes:
    return (bytes((seed + index) % 251 for index in range(min(size, 251))) * (size // 251 + 1))[:size]


@given(st.lists(sizes, max_size=6), st.lists(st.one_of(st.integers(1, 20), st.integers(1, 100_000))), st.booleans())
def test_messages_come_out_as_they_went_in_however_the_stream_is_cut(
    lengths: list[int], cuts: list[int], straight: bool
) -> None:
    sent = [some(length, place) for place, length in enumerate(lengths)]
    stream = b"".join(b"".join(encode(head)) for head in sent)
    decoder, received, turn = Decoder(), list[bytes](), 0
    while stream:
        size = cuts[turn] if turn < len(cuts) else len(stream)
        turn += 1
        if straight:
            room = decoder.room()
            assert room
            size = min(size, len(room), len(stream))
            room[:size] = stream[:size]
            received += decoder.advance(size)
        else:
            received += decoder.feed(stream[:size])
        stream = stream[size:]
    assert received == sent


@given(st.binary(max_size=300))
def test_any_bytes_are_messages_or_an_error_or_wait_for_more(data: bytes) -> None:
    try:
        received = Decoder(head_limit=64).feed(data)
    except WireError:
        return
    sent = b"".join(b"".join(encode(head)) for head in received)
    assert sent == data[: len(sent)]


@pytest.mark.parametrize("lengths", [(65, 0), (0, 1), (1 << 31, 1 << 62)])
def test_more_than_the_limits_is_refused_when_announced(lengths: tuple[int, int]) -> None:
    with pytest.raises(WireError, match="64"):
        Decoder(head_limit=64).feed(LENGTHS.pack(*lengths))


def test_memory_is_allocated_for_received_not_for_announced_bytes() -> None:
    decoder, size = Decoder(), 16 << 20
    assert decoder.feed(LENGTHS.pack(size, 0) + bytes(100_000)) == []
    assert len(decoder.room()) < 200_000
    assert decoder.feed(bytes(size - 100_000)) == [bytes(size)]
    assert len(decoder.room()) < 200_000


def test_a_large_tail_is_not_copied_to_be_sent() -> None:
    tail = bytearray(1_000_000)
    last = encode(b"head", memoryview(tail))[-1]
    assert isinstance(last, memoryview)
    assert last.obj is tail


def test_a_tail_in_pieces_is_one_tail() -> None:
    pieces: list[bytes | bytearray | memoryview] = [b"ab", memoryview(b""), bytearray(100_000), b"z"]
    assert b"".join(encode(b"h", pieces)) == LENGTHS.pack(1, 100_003) + b"hab" + bytes(100_000) + b"z"


def test_a_head_longer_than_allowed_is_not_sent() -> None:
    with pytest.raises(WireError, match="tail"):
        encode(bytes((16 << 20) + 1))
