"""Ranges that are requested before they are read, against a dictionary of bytes."""

from __future__ import annotations

import threading
from functools import partial

import pytest
from eventually import eventually
from hypothesis import given
from hypothesis import strategies as st

from treadle.primitives.errors import MissingError
from treadle.primitives.stores import ranges_ahead
from treadle.primitives.stores.ranges_ahead import ObjectRange, RangesAhead


class Objects:
    """Objects whose bytes are their number; requests wait while they are held."""

    def __init__(self) -> None:
        self.requested: list[ObjectRange] = []
        self.flow = threading.Event()
        self.flow.set()

    def has_been_asked(self, times: int) -> bool:
        return len(self.requested) == times

    def read(self, name: str, offset: int, length: int) -> bytes:
        self.requested.append(ObjectRange(name, offset, length))
        assert self.flow.wait(60)
        if name == "lost":
            raise MissingError("gone")
        return bytes([int(name)]) * length


def ranges(count: int, length: int = 10) -> list[ObjectRange]:
    return [ObjectRange(str(number), 0, length) for number in range(count)]


def test_first_read_requests_the_next_ranges() -> None:
    objects = Objects()
    ahead = RangesAhead(objects.read)
    ahead.expect(ranges(9))
    assert objects.requested == [], "a cache may have them all"
    assert ahead.read("0", 0, 10) == bytes(10)
    eventually(lambda: len(objects.requested) == 9)
    assert [ahead.read(*one)[0] for one in ranges(9)[1:]] == list(range(1, 9))
    assert len(objects.requested) == 9, "nothing is requested twice"


def test_requests_and_their_bytes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranges_ahead, "WINDOW", 100)
    for length, expected in ((1, ranges_ahead.REQUESTS), (30, 3), (100, 1)):
        objects = Objects()
        ahead = RangesAhead(objects.read)
        ahead.expect(ranges(50, length))
        objects.flow.clear()
        first = threading.Thread(target=ahead.read, args=("0", 0, length))
        first.start()
        eventually(partial(objects.has_been_asked, 1 + expected))
        objects.flow.set()
        first.join()
        assert [ahead.read(*one)[0] for one in ranges(50, length)[1:]] == list(range(1, 50))
        assert len(objects.requested) == 50


def test_error_is_raised_where_the_range_is_read() -> None:
    objects = Objects()
    ahead = RangesAhead(objects.read)
    ahead.expect([*ranges(2), ObjectRange("lost", 0, 1), ObjectRange("7", 0, 1)])
    assert [ahead.read(*one)[0] for one in ranges(2)] == [0, 1]
    with pytest.raises(MissingError):
        ahead.read("lost", 0, 1)
    assert ahead.read("7", 0, 1) == b"\7"


@given(announced=st.lists(st.lists(st.integers(0, 9), max_size=9), max_size=4), read=st.lists(st.integers(0, 12)))
def test_any_order_of_reading_gets_the_bytes(announced: list[list[int]], read: list[int]) -> None:
    ahead = RangesAhead(Objects().read)
    for numbers in announced:
        ahead.expect([ObjectRange(str(number), 0, 10) for number in numbers])
    for number in read:
        assert ahead.read(str(number), 0, 10) == bytes([number]) * 10


def test_forgotten_ranges_are_not_requested() -> None:
    objects = Objects()
    ahead = RangesAhead(objects.read)
    ahead.expect(ranges(9))
    ahead.forget()
    assert ahead.read("0", 0, 10) == bytes(10)
    assert len(objects.requested) == 1


def test_without_room_for_threads_ranges_are_read_when_they_are_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **named: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(ranges_ahead, "start_thread", refuse)
    ahead = RangesAhead(Objects().read)
    ahead.expect(ranges(9))
    assert [ahead.read(*one)[0] for one in ranges(9)] == list(range(9))
