"""Copies of memory of several machines become equal, and lose no change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from primitives.objects.local import Local

from treadle.primitives.objects.catalog.memory import MEMORY_BYTES, PAGE_BYTES, PAGES_OF_CALL, SharedAreas
from treadle.primitives.objects.memory_copies import Area, AreaCopies


class Keeper:
    """A memory as a handle shows it."""

    def __init__(self) -> None:
        self._object = Local(SharedAreas)

    def push(self, changes: Any) -> Any:
        return self._object.call(1, "push", changes)

    def pull(self, version: int, areas: list[int]) -> Any:
        return self._object.call(1, "pull", version, areas)

    def add(self, size: int) -> Any:
        return self._object.call(1, "add", size)


def copies_of(keeper: Any, sizes: Mapping[int, int]) -> tuple[AreaCopies, dict[int, Any]]:
    """The side of a process, and the bytes of its areas."""
    copies, memory = AreaCopies(keeper), {number: np.zeros(size, np.uint8) for number, size in sizes.items()}
    for number, mine in memory.items():
        copies.add(number, Area(mine))
    return copies, memory


WRITES = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 1), st.integers(0, 2999), st.integers(0, 255)), max_size=60
)
EVENTS = st.lists(st.tuples(st.integers(0, 2), WRITES, st.sampled_from(["publish", "refresh", "both"])), max_size=12)


@given(EVENTS, st.booleans())
def test_copies_of_a_memory_become_equal_and_keep_all_changes(events: Any, locked: bool) -> None:
    """Three processes. Each changes the bytes that only it changes, or all change all bytes with a lock."""
    keeper, sizes = Keeper(), {0: 3000, 1: 3 * PAGE_BYTES}
    for size in sizes.values():
        keeper.add(size)
    processes = [copies_of(keeper, sizes) for _ in range(3)]
    expected = {number: np.zeros(size, np.uint8) for number, size in sizes.items()}
    for process, writes, event in events:
        copies, memory = processes[process]
        if locked:
            copies.refresh()
        for step, area, place, value in writes:
            at = (place * (1 if area == 0 else 64) + step) % sizes[area]
            if locked or at % 3 == process:
                memory[area][at] = expected[area][at] = value
        if locked or event != "refresh":
            copies.publish()
        if event != "publish":
            copies.refresh()
    for copies, _ in processes:
        copies.publish()
    for copies, memory in processes:
        copies.refresh()
        assert all((memory[number] == expected[number]).all() for number in sizes)


def test_process_fetches_only_the_pages_that_changed_since() -> None:
    keeper, sizes = Keeper(), {0: 200 * PAGE_BYTES, 1: 1}
    for size in sizes.values():
        keeper.add(size)
    (one, mine), (two, theirs) = copies_of(keeper, sizes), copies_of(keeper, {0: sizes[0]})
    mine[0][:] = 7
    one.publish()
    version, pages = keeper.pull(0, [0])
    assert len(pages) == PAGES_OF_CALL
    assert two.refresh()
    assert (theirs[0] == 7).all()
    mine[0][5 * PAGE_BYTES], mine[1][0] = 8, 9
    one.publish()
    assert [(area, page) for area, page, _ in keeper.pull(200, [0, 1])[1]] == [(0, 5), (1, 0)]
    assert [(area, page) for area, page, _ in keeper.pull(200, [0])[1]] == [(0, 5)]
    assert [one.refresh(), two.refresh(), two.refresh()] == [False, True, False]
    assert (theirs[0][5 * PAGE_BYTES], version) == (8, PAGES_OF_CALL)


def test_memory_without_room_takes_no_area() -> None:
    keeper = Keeper()
    assert [keeper.add(size) for size in (MEMORY_BYTES, 1)] == [0, None]
    keeper = Keeper()
    assert [keeper.add(size) for size in (1, MEMORY_BYTES, MEMORY_BYTES - 1)] == [0, None, 1]


def test_unused_area_sends_its_changes_before_a_new_copy() -> None:
    keeper: Any = Keeper()
    keeper.add(4)
    copies, memory = AreaCopies(keeper), np.zeros(4, np.uint8)
    area = Area(memory)
    copies.add(0, area)
    memory[1] = 5
    copies.unused.append(area)
    copies.publish()
    again = np.zeros(4, np.uint8)
    copies.add(0, Area(again))
    assert again.tolist() == [0, 5, 0, 0]
    again[2] = 6
    copies.publish()
    _, elsewhere = copies_of(keeper, {0: 4})
    assert elsewhere[0].tolist() == [0, 5, 6, 0]
