from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.primitives.wire import Decoder, WireError, encode
from treadle.primitives.wire.framing import LENGTHS, Frame

sizes = st.one_of(st.integers(0, 100), st.sampled_from([16_371, 65_524, 65_536, 70_000, 200_001]))
frames = st.lists(st.tuples(sizes, sizes), max_size=6)


def some(size: int, seed: int) -> bytes:
    return bytes((seed + index) % 251 for index in range(min(size, 251))) * (size // 251 + 1)


@given(frames, st.lists(st.one_of(st.integers(1, 20), st.integers(1, 100_000))), st.booleans())
def test_frames_come_out_as_they_went_in_however_the_stream_is_cut(
    lengths: list[tuple[int, int]], cuts: list[int], straight: bool
) -> None:
    sent = [(some(head, i)[:head], some(tail, i + 7)[:tail]) for i, (head, tail) in enumerate(lengths)]
    stream = b"".join(b"".join(encode(head, tail)) for head, tail in sent)
    decoder, received, turn = Decoder(), list[Frame](), 0
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
    assert decoder.between


@given(st.binary(max_size=300))
def test_any_bytes_are_frames_or_an_error_or_wait_for_more(data: bytes) -> None:
    decoder = Decoder(head_limit=64, tail_limit=64)
    try:
        received = decoder.feed(data)
    except WireError:
        return
    assert b"".join(b"".join(encode(*frame)) for frame in received) == data[: sum(map(framed_size, received))]


def framed_size(frame: Frame) -> int:
    return LENGTHS.size + len(frame.head) + len(frame.tail)


@pytest.mark.parametrize("lengths", [(65, 0), (0, 65), (1 << 31, 1 << 62)])
def test_more_than_the_limits_is_refused_when_announced(lengths: tuple[int, int]) -> None:
    with pytest.raises(WireError, match="64"):
        Decoder(head_limit=64, tail_limit=64).feed(LENGTHS.pack(*lengths))


def test_a_large_tail_is_neither_copied_to_be_sent_nor_moved_when_received() -> None:
    tail = bytearray(1_000_000)
    last = encode(b"head", memoryview(tail))[-1]
    assert isinstance(last, memoryview)
    assert last.obj is tail
    decoder = Decoder()
    decoder.feed(b"".join(encode(b"head", tail))[:1000])
    room = decoder.room()
    (frame,) = decoder.feed(bytes(len(room)))
    assert room.obj is frame.tail


def test_a_tail_in_pieces_is_one_tail() -> None:
    pieces: list[bytes | bytearray | memoryview] = [b"ab", memoryview(b""), bytearray(100_000), b"z"]
    (frame,) = Decoder().feed(b"".join(encode(b"h", pieces)))
    assert bytes(frame.tail) == b"".join(pieces)


def test_a_head_longer_than_allowed_is_not_sent() -> None:
    with pytest.raises(WireError, match="tail"):
        encode(bytes((16 << 20) + 1))
