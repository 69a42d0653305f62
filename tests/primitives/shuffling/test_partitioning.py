from __future__ import annotations

import pickle
from bisect import bisect_right
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.primitives.errors import DataError
from treadle.primitives.shuffling import range_partitioning
from treadle.primitives.shuffling.key_order import order
from treadle.primitives.shuffling.keys import Key, identity, stable_hash
from treadle.primitives.shuffling.partitioning import (
    SAMPLE_SIZE,
    check_boundaries,
    choose_boundaries,
    cut,
    hash_targets,
    sample_keys,
    split_evenly,
)
from treadle.primitives.shuffling.range_partitioning import range_targets
from treadle.primitives.testing.keys import arrow_arrays, keys, numbers, numpy_arrays

# -- split -------------------------------------------------------------------------------------------------------------


@given(st.integers(0, 1000), st.integers(1, 60))
def test_even_split_covers_all_in_order_and_differs_by_at_most_one(count: int, parts: int) -> None:
    bounds = split_evenly(count, parts)
    assert [place for start, stop in bounds for place in range(start, stop)] == list(range(count))
    sizes = [stop - start for start, stop in bounds]
    assert len(sizes) == parts
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] - sizes[-1] <= 1


# -- hash --------------------------------------------------------------------------------------------------------------


@given(st.lists(keys(), max_size=8), st.integers(1, 1000))
def test_hash_target_is_the_hash_modulo_partitions(found: list[Key], partitions: int) -> None:
    assert hash_targets(found, partitions) == [stable_hash(key) % partitions for key in found]


@given(numpy_arrays() | arrow_arrays(), st.integers(1, 1000))
def test_hash_targets_of_an_array_equal_the_targets_of_its_elements(array: Any, partitions: int) -> None:
    targets = hash_targets(array, partitions)
    assert isinstance(targets, np.ndarray)
    assert targets.dtype == np.int64
    assert targets.tolist() == hash_targets(list(array), partitions)


# -- range -------------------------------------------------------------------------------------------------------------


def _ascending(found: list[Any]) -> list[Any]:
    return sorted(found, key=order)


def _expected(found: Any, boundaries: list[Any]) -> list[int]:
    ranked = [order(boundary) for boundary in boundaries]
    return [bisect_right(ranked, order(key)) for key in found]


@given(st.lists(keys(), max_size=8), st.lists(keys(), max_size=5).map(_ascending))
def test_range_target_counts_the_boundaries_not_above_the_key(found: list[Any], boundaries: list[Any]) -> None:
    assert range_targets(found, boundaries) == _expected(found, boundaries)


@given(st.lists(st.integers() | st.booleans()), st.lists(st.integers(), max_size=5).map(_ascending))
def test_range_targets_of_one_type_agree(found: list[Any], boundaries: list[Any]) -> None:
    assert range_targets(found, boundaries) == _expected(found, boundaries)


@given(numpy_arrays() | arrow_arrays(), st.lists(keys(), max_size=4), st.data())
def test_range_targets_of_an_array_equal_the_targets_of_its_elements(
    array: Any, others: list[Any], data: st.DataObject
) -> None:
    own = data.draw(st.lists(st.sampled_from(list(array)), max_size=4)) if len(array) else []
    boundaries = _ascending(own + others)
    assert list(range_targets(array, boundaries)) == _expected(array, boundaries)


@given(st.sampled_from(["i8", "u8", "i2", "f8", "f4"]), st.data(), st.lists(numbers(), max_size=6).map(_ascending))
def test_number_boundaries_are_compared_exactly(dtype: str, data: st.DataObject, boundaries: list[Any]) -> None:
    kind = np.dtype(dtype)
    near = st.sampled_from([0, 1, 2**15 - 1, 2**53, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1, -(2**63)])
    values = data.draw(st.lists(near | numbers(), max_size=8))
    array = np.array([value for value in values if _fits(value, kind)], dtype=kind)
    assert list(range_targets(array, boundaries)) == _expected(array, boundaries)


def _fits(value: Any, kind: np.dtype[Any]) -> bool:
    if kind.kind == "f":
        return not abs(value) >= 2**100
    info = np.iinfo(kind)
    return isinstance(value, int) and int(info.min) <= value <= int(info.max)


def test_key_equal_to_a_boundary_goes_right_and_equal_boundaries_leave_a_gap() -> None:
    assert range_targets(["a", "b", "c"], ["b", "b"]) == [0, 2, 2]
    assert list(range_targets(np.array([b"a", b"b"]), [b"b", b"b"])) == [0, 2]


# -- boundaries --------------------------------------------------------------------------------------------------------


def test_boundaries_come_back_as_plain_keys() -> None:
    assert check_boundaries(np.array([1, 1, 3]), 4) == [1, 1, 3]
    assert [type(key) for key in check_boundaries(pa.array(["a", "b"]), 3)] == [str, str]
    assert check_boundaries([], 1) == []


@pytest.mark.parametrize(
    ("boundaries", "message"),
    [
        ([1, 2], "2 boundaries for 4 partitions"),
        ([1, 3, 2], r"boundary 2 \(2\) is less than the one before it \(3\)"),
        (["a", 1, 2], "boundary 1"),
        ([1, [2], 3], "list cannot be a key"),
        ("abc", "not str"),
        (None, "not NoneType"),
    ],
)
def test_wrong_boundaries_are_refused(boundaries: object, message: str) -> None:
    with pytest.raises(DataError, match=message):
        check_boundaries(boundaries, 4)


# -- samples -----------------------------------------------------------------------------------------------------------


def test_few_keys_are_all_sampled() -> None:
    assert sample_keys(list(range(SAMPLE_SIZE)), seed=0, stage="s", partition=0) == list(range(SAMPLE_SIZE))


def test_sample_takes_one_key_of_each_stratum_as_the_seed_says() -> None:
    found = range(10 * SAMPLE_SIZE)
    sample = sample_keys(found, seed=0, stage="s", partition=3)
    assert [key // 10 for key in sample if isinstance(key, int)] == list(range(SAMPLE_SIZE))
    assert sample == sample_keys(np.arange(10 * SAMPLE_SIZE), seed=0, stage="s", partition=3)
    others = [(1, "s", 3), (0, "t", 3), (0, "s", 4)]
    assert all(sample != sample_keys(found, seed=a, stage=b, partition=c) for a, b, c in others)


def test_sampled_places_are_pinned() -> None:
    sample = sample_keys(range(10**6), seed=7, stage="sort[1].keys", partition=2)
    assert sample[:4] == [623, 1272, 2164, 3128]


@given(st.lists(st.tuples(st.lists(keys(), max_size=6), st.integers(0, 1000)), max_size=5), st.integers(1, 12))
def test_chosen_boundaries_are_always_valid(found: list[tuple[list[Key], int]], partitions: int) -> None:
    samples = [(sampled, max(rows, len(sampled))) for sampled, rows in found]
    chosen = choose_boundaries(samples, partitions)
    assert [identity(key) for key in check_boundaries(chosen, partitions)] == [identity(key) for key in chosen]


def test_boundaries_over_nothing_are_none() -> None:
    assert choose_boundaries([], 3) == [None, None]
    assert choose_boundaries([([], 0)], 1) == []


def test_boundaries_weigh_a_sample_by_its_partition() -> None:
    assert choose_boundaries([([1, 2, 3, 4], 4), ([10, 20, 30, 40], 400)], 4) == [20, 30, 40]


def test_boundaries_divide_frequent_keys_as_evenly_as_they_can() -> None:
    assert choose_boundaries([(["a"] * 60 + ["b"] * 40, 100)], 2) == ["b"]
    assert choose_boundaries([(["a"] * 40 + ["b"] * 60, 100)], 2) == ["b"]


def test_sampled_boundaries_keep_partitions_within_a_fifth_of_even() -> None:
    generator = np.random.default_rng(0)
    parts = [generator.normal(loc=part, size=20_000) for part in range(8)]
    samples = [(sample_keys(part, seed=0, stage="s", partition=index), len(part)) for index, part in enumerate(parts)]
    boundaries = choose_boundaries(samples, 8)
    sizes = np.bincount(np.asarray(range_targets(np.concatenate(parts), boundaries)), minlength=8)
    assert sizes.min() > 16_000
    assert sizes.max() < 24_000


# -- batches -----------------------------------------------------------------------------------------------------------


@given(st.lists(st.text(max_size=30), max_size=20), st.integers(0, 5), st.integers(0, 80))
def test_cut_of_objects_is_greedy_within_both_limits(records: list[str], items: int, size: int) -> None:
    chunks = cut("objects", records, max_items=items, max_bytes=size)
    assert [record for chunk in chunks for record in chunk] == records
    lengths = [sum(len(pickle.dumps(record, protocol=5)) for record in chunk) for chunk in chunks]
    assert all(len(chunk) >= 1 for chunk in chunks) or chunks == [[]]
    assert not items or all(len(chunk) <= items for chunk in chunks)
    assert not size or all(length <= size or len(chunk) == 1 for chunk, length in zip(chunks, lengths, strict=True))
    for chunk, after, length in zip(chunks, chunks[1:], lengths, strict=False):
        grown = length + len(pickle.dumps(after[0], protocol=5))
        assert (items and len(chunk) == items) or (size and grown > size)


def test_cut_of_an_array_counts_the_bytes_of_its_rows() -> None:
    chunks = cut("array", np.zeros((10, 4), dtype=np.uint8), max_bytes=12)
    assert [len(chunk) for chunk in chunks] == [3, 3, 3, 1]
    assert [len(chunk) for chunk in cut("array", np.zeros(3), max_bytes=1)] == [1, 1, 1]


def test_cut_of_a_table_keeps_its_rows_in_order() -> None:
    table = pa.table({"a": list(range(10))})
    chunks = cut("table", table, max_items=4)
    assert [chunk.num_rows for chunk in chunks] == [4, 4, 2]
    assert pa.concat_tables(chunks).equals(table)
    assert [chunk.num_rows for chunk in cut("table", table, max_items=4, max_bytes=24)] == [3, 3, 3, 1]


@pytest.mark.parametrize(
    ("kind", "value"), [("objects", []), ("array", np.zeros((0, 2))), ("table", pa.table({"a": []}))]
)
def test_empty_partition_is_one_empty_chunk(kind: Any, value: Any) -> None:
    for limits in ({}, {"max_items": 2}, {"max_bytes": 2}):
        chunks = cut(kind, value, **limits)
        assert [len(chunk) for chunk in chunks] == [0]
        assert type(chunks[0]) is type(value)


# -- many values, many boundaries ----------------------------------------------------------------------------------

_VALUES: dict[str, list[Any]] = {
    "i8": [-(2**63), -1, 0, 1, 2, 3, 5, 8, 13, 21, 2**63 - 1],
    "u8": [0, 0, 1, 2, 3, 5, 8, 13, 21, 2**63, 2**64 - 1],
    "i2": [-(2**15), -1, 0, 1, 2, 3, 5, 8, 13, 21, 2**15 - 1],
    "f8": [float("-inf"), -0.0, 0.5, 1, 1.5, float("nan"), 2, 3.5, 8, float("inf"), float("nan")],
}


@pytest.mark.parametrize("kind", _VALUES)
@pytest.mark.parametrize("count", [0, 1, 15, 16, 17, 40, 300])
def test_arrays_longer_than_a_chunk_meet_any_number_of_boundaries(
    kind: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(range_partitioning, "_CHUNK", 4)
    array = np.array(_VALUES[kind], dtype=kind)
    inner: list[Any] = [number / 2 if number % 3 else number // 2 for number in range(count)]
    for around in ([], [None, float("-inf")], [float("inf"), float("nan"), float("nan"), "text"]):
        boundaries = _ascending([*inner, *around])
        assert list(range_targets(array, boundaries)) == _expected(array, boundaries)
        assert range_targets(list(array), boundaries) == _expected(array, boundaries)


@pytest.mark.parametrize("boundary", [10**400, -(10**400), 2**1024 - 1, float(2**63), -(2.0**63), 2**53 + 1, 0.1])
def test_doubles_meet_numbers_that_no_double_is(boundary: Any) -> None:
    near = [np.nextafter(np.float64(2**53), np.inf), 2.0**53, 1.7e308, -1.7e308, 0.1, np.nextafter(0.1, 1), 2.0**63]
    array = np.array([*near, np.inf, -np.inf, -(2.0**63)])
    assert list(range_targets(array, [boundary])) == _expected(array, [boundary])


@pytest.mark.parametrize("kind", ["S3", "U3", "V3"])
def test_fixed_texts_meet_texts_of_any_length(kind: str) -> None:
    texts: list[Any] = [b"", b"a", b"ab", b"abc", b"b", b"zzz"]
    array = np.array(texts if kind != "V3" else [text.ljust(3, b"\0") for text in texts], dtype=kind)
    own: list[Any] = [b"", b"ab", b"ab\0", b"abcd", b"abc", b"b", b"zzzz"]
    if kind == "U3":
        own = [text.decode() for text in own]
    for boundaries in ([one] for one in own):
        assert list(range_targets(array, boundaries)) == _expected(array, boundaries), boundaries
    boundaries = _ascending([*own, None, 1, "x", b"y", UUID(int=1)])
    assert list(range_targets(array, boundaries)) == _expected(array, boundaries)
