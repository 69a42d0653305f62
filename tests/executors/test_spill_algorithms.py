"""Sorting, grouping and folding through files give the same result as in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import chain, islice
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from executors.spill_strategies import KEYS, PAIRS, ROOMS, known, pieces_of
from hypothesis import given, settings
from hypothesis import strategies as st

from treadle.executors.operations.grouping import group
from treadle.executors.operations.record_flow import Flow, within
from treadle.executors.spill import sorting
from treadle.executors.spill.disk_sequence import SpilledSequence
from treadle.executors.spill.folding import Folder
from treadle.executors.spill.grouping import Grouper, sorted_groups
from treadle.executors.spill.memory_budget import MemoryBudget
from treadle.executors.spill.row_access import take
from treadle.executors.spill.sorting import Sorter
from treadle.primitives.encoding import codec
from treadle.primitives.encoding.references import Kind
from treadle.primitives.shuffling.folds import fold_by_key
from treadle.primitives.shuffling.key_order import argsort
from treadle.primitives.shuffling.partitioning import rows_between

SIZES = st.integers(1, 9)
EXAMPLES = settings(max_examples=60, deadline=None)


def pair_up(left: Any, right: Any) -> Any:
    """Not associative, so it shows the shape of a fold."""
    return (left, right)


# -- sorting -----------------------------------------------------------------------------------------------------------


def in_order(kind: Kind, pieces: list[tuple[Any, Any]], room: MemoryBudget) -> tuple[list[Any], Any]:
    sorter = Sorter(kind, room)
    for keys, value in pieces:
        sorter.add(keys, value)
    blocks = list(sorter.blocks())
    room.close()
    return [list(keys) for keys, _ in blocks], codec.concat(kind, [value for _, value in blocks])


@EXAMPLES
@given(keys=st.lists(KEYS, min_size=1, max_size=60), size=SIZES, room=ROOMS)
def test_records_come_in_the_order_of_a_stable_sort(keys: list[Any], size: int, room: int) -> None:
    records = list(enumerate(keys))
    pieces = [([key for _, key in piece], piece) for piece in pieces_of(records, size)]
    _, found = in_order("objects", pieces, MemoryBudget(room))
    assert known(found) == known([records[place] for place in argsort(keys)])


@EXAMPLES
@given(numbers=st.lists(st.integers(0, 5), min_size=1, max_size=60), size=SIZES, room=ROOMS)
@pytest.mark.parametrize("kind", ["array", "table"])
def test_columns_come_in_the_order_of_a_stable_sort(kind: Kind, numbers: list[int], size: int, room: int) -> None:
    rows = np.array([(number, place) for place, number in enumerate(numbers)], dtype="i8")
    value: Any = rows if kind == "array" else pa.table({"k": [str(n) for n in numbers], "p": list(range(len(numbers)))})
    keys = rows[:, 0] if kind == "array" else value.column("k").combine_chunks()
    slices = [slice(start, start + size) for start in range(0, len(numbers), size)]
    pieces = [(keys[one], value[one] if kind == "array" else value.slice(one.start, size)) for one in slices]
    _, found = in_order(kind, pieces, MemoryBudget(room))
    wanted = take(kind, value, argsort(keys))
    assert np.array_equal(found, wanted) if kind == "array" else found.equals(wanted)


def test_more_runs_than_are_merged_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorting, "FAN_IN", 3)
    records = [(place * 7919 % 50, place) for place in range(500)]
    pieces = [([key for key, _ in piece], piece) for piece in pieces_of(records, 10)]
    room = MemoryBudget(2000)
    _, found = in_order("objects", pieces, room)
    assert found == sorted(records, key=lambda record: record[0])
    assert room.spilled > 0


@pytest.mark.parametrize("kind", ["objects", "array", "table"])
def test_a_pass_writes_every_record_once(kind: Kind) -> None:
    """Chunks are views of a run. None keeps the whole run in memory."""
    room, count = MemoryBudget(256 << 10), 20_000
    numbers = np.arange(count, dtype="i8") * 7919 % 10_007
    texts = [f"{number:050}" for number in numbers.tolist()]
    value: Any = {"objects": texts, "array": np.array(texts, dtype="S50"), "table": pa.table({"t": texts})}[kind]
    keys: Any = {"objects": texts, "array": numbers, "table": pa.array(texts)}[kind]
    sorter = Sorter(kind, room)
    for start in range(0, count, 1000):
        sorter.add(keys[start : start + 1000], rows_between(kind, value, start, start + 1000))
    assert sum(len(found) for found, _ in sorter.blocks()) == count
    assert 50 * count < room.spilled < 4 * 50 * count
    room.close()


def test_a_run_is_merged_a_chunk_at_a_time() -> None:
    """Memory holds a chunk of each run, and their merged records."""
    room = MemoryBudget(64 << 10)
    sorter = Sorter("objects", room)
    for piece in pieces_of([(place * 7919 % 10007, "x" * 100) for place in range(10_000)], 100):
        sorter.add([key for key, _ in piece], piece)
    longest = max(len(keys) for keys, _ in sorter.blocks())
    assert longest < 1000
    room.close()


# -- grouping ----------------------------------------------------------------------------------------------------------


def columns(pairs: list[tuple[Any, Any]], size: int) -> list[tuple[list[Any], list[Any]]]:
    return [([key for key, _ in piece], [value for _, value in piece]) for piece in pieces_of(pairs, size)]


@EXAMPLES
@given(pairs=PAIRS, size=SIZES, room=ROOMS)
def test_groups_equal_a_dict_in_order_of_first_occurrence(pairs: list[Any], size: int, room: int) -> None:
    with closing(MemoryBudget(room)) as opened:
        grouper = Grouper(opened)
        for keys, values in columns(pairs, size):
            grouper.add(keys, values)
        found = [(key, list(chain.from_iterable(pieces))) for key, pieces in grouper.groups()]
    assert known(found) == known(group([key for key, _ in pairs], [value for _, value in pairs]))


def grouped(pairs: list[tuple[Any, Any]], size: int, room: MemoryBudget) -> list[tuple[Any, list[Any]]]:
    grouper = Grouper(room)
    for keys, values in columns(pairs, size):
        grouper.add(keys, values)
    return [(key, list(chain.from_iterable(pieces))) for key, pieces in grouper.groups()]


HEAVY: dict[str, Callable[[int], Any]] = {
    "one key": lambda place: "all",
    "a few": lambda place: place % 3,
    "a heavy one among many": lambda place: place if place % 4 == 0 else "heavy",
    "a heavy one that comes late": lambda place: place if place < 500 or place % 4 == 0 else "heavy",
    "in a few buckets": lambda place: place % 50,
    "every one another": lambda place: place,
}


@pytest.mark.parametrize("key_of", HEAVY.values(), ids=HEAVY.keys())
def test_groups_of_any_weight(key_of: Callable[[int], Any]) -> None:
    pairs = [(key_of(place), f"{place:0100}") for place in range(1500)]
    with closing(MemoryBudget(8000)) as room:
        assert grouped(pairs, 100, room) == group([key for key, _ in pairs], [value for _, value in pairs])
        assert room.spilled > 150_000


def test_a_heavy_key_is_written_once() -> None:
    """It goes into a bucket of its own, and from there to the function."""
    pairs = [("heavy" if place % 10 else place, "x" * 1000) for place in range(1000)]
    with closing(MemoryBudget(100_000)) as room:
        grouped(pairs, 50, room)
        assert room.spilled < 1.3 * 1_000_000


@EXAMPLES
@given(pairs=PAIRS, size=SIZES, taken=st.integers(0, 2))
def test_rest_of_a_group_is_skipped(pairs: list[Any], size: int, taken: int) -> None:
    with closing(MemoryBudget(200)) as room:
        grouper = Grouper(room)
        for keys, values in columns(pairs, size):
            grouper.add(keys, values)
        found = [(key, list(islice(pieces, taken)))[0] for key, pieces in grouper.groups()]
    assert known(found) == known([key for key, _ in group([key for key, _ in pairs], [0] * len(pairs))])


@EXAMPLES
@given(pairs=PAIRS, size=SIZES)
def test_groups_of_sorted_records_need_no_file(pairs: list[Any], size: int) -> None:
    ordered = [pairs[place] for place in argsort([key for key, _ in pairs])]
    found = [(key, list(chain.from_iterable(pieces))) for key, pieces in sorted_groups(columns(ordered, size))]
    assert known(found) == known(group([key for key, _ in ordered], [value for _, value in ordered]))


@EXAMPLES
@given(pairs=PAIRS, size=SIZES, room=ROOMS)
def test_folds_are_left_folds_of_every_key(pairs: list[Any], size: int, room: int) -> None:
    wanted = fold_by_key(pairs, pair_up)
    with closing(MemoryBudget(room)) as opened:
        folder = Folder(pair_up, opened)
        for keys, values in columns(pairs, size):
            folder.add(keys, values)
        assert known(list(folder.results())) == known(wanted)


class Unwritable:
    """An accumulator that cannot be pickled."""

    def __init__(self, total: int) -> None:
        self.total = total

    def __reduce__(self) -> Any:
        raise TypeError("not to be written")


def add(left: Any, right: int) -> Unwritable:
    return Unwritable((left.total if isinstance(left, Unwritable) else left) + right)


def test_accumulators_are_never_written() -> None:
    with closing(MemoryBudget(500)) as room:
        folder = Folder(add, room)
        for number in range(200):
            folder.add([number % 40], [1])
        found = [(key, value.total) for key, value in folder.results()]
        assert room.spilled > 0
    assert found == [(key, 5) for key in range(40)]


def test_no_more_is_held_than_fits_when_the_first_is_unlike_the_rest() -> None:
    """Records of 64 KiB after a small one. About sixteen are a mebibyte."""
    sizes = [1] + [1 << 16] * 200
    taken = 0

    def parts() -> Iterator[list[Any]]:
        nonlocal taken
        for taken, size in enumerate(sizes, 1):
            yield [(taken, bytes(size))]

    value, left = within(Flow("objects", parts()), 1 << 20)
    assert value is None
    assert left is not None
    assert taken < 64
    assert [record for part in left for record in part] == [(n, bytes(size)) for n, size in enumerate(sizes, 1)]

    with closing(MemoryBudget(1 << 20)) as room:
        folder = Folder(pair_up, room)
        for n, size in enumerate(sizes):
            folder.add([n], [bytes(size)])
        assert room.spilled > 100 << 16
        assert [key for key, _ in folder.results()] == list(range(len(sizes)))


def test_a_key_with_more_values_than_fit_comes_a_few_at_a_time() -> None:
    room = MemoryBudget(100_000)
    grouper = Grouper(room)
    for start in range(0, 20_000, 500):
        keys = ["one" if place % 100 else f"other {place}" for place in range(start, start + 500)]
        grouper.add(keys, [f"{place:0100}" for place in range(start, start + 500)])
    for key, pieces in grouper.groups():
        lengths = list(map(len, pieces))
        if key == "one":
            assert sum(lengths) == 19_800
            assert max(lengths) < 2000
        else:
            assert lengths == [1]
    room.close()


def test_a_sequence_on_disk_is_one(tmp_path: Any) -> None:
    room = MemoryBudget(1)
    items = SpilledSequence(room, [[0, 1], [], [2], [3, 4, 5]])
    assert len(items) == 6
    assert [*items] == [0, 1, 2, 3, 4, 5]
    assert (items[-1], items[1:3]) == (5, [1, 2])
    with pytest.raises(IndexError):
        items[6]
    room.close()
