"""A shuffle of two levels gives every target the same data as one level."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from executors.bench import Bench
from executors.operation_functions import FIRST, FIXTURES, by, concat, first_column, name, per_record
from hypothesis import given
from hypothesis import strategies as st

from treadle.executors.program import BlockInput, By, Merge, Scatter
from treadle.primitives.encoding.references import BlockRef, Kind
from treadle.primitives.errors import FailureClass
from treadle.primitives.formats import WriteOptions
from treadle.primitives.formats.encode import encode_part
from treadle.primitives.shuffling.partitioning import split_evenly

DICTIONARY = pa.dictionary(pa.int8(), pa.string())
SOURCES = st.lists(st.lists(st.integers(-9, 9), max_size=8), min_size=1, max_size=7)


def scattered(bench: Bench, kind: Kind, sources: Sequence[Any], tail: Scatter) -> list[BlockRef]:
    given = [bench.outcome(source=bench.blocks_of(value, kind=kind), tail=tail).block for value in sources]
    return [block for block in given if block is not None]


def read(bench: Bench, blocks: Sequence[BlockRef], part: int) -> tuple[Kind, Any]:
    """The input of a consumer of this part of each block."""
    slices = tuple(block.slice(part) for block in blocks)
    outcome = bench.outcome(source=BlockInput((slices,), pieces=True))
    assert outcome.block is not None
    return outcome.kind, bench.blocks.get(outcome.block.slice(0))


def one_level(bench: Bench, kind: Kind, sources: Sequence[Any], tail: Scatter) -> list[tuple[Kind, Any]]:
    blocks = scattered(bench, kind, sources, tail)
    return [read(bench, blocks, target) for target in range(tail.partitions)]


def two_levels(
    bench: Bench, kind: Kind, sources: Sequence[Any], tail: Scatter, groups: int, run: int
) -> list[tuple[Kind, Any]]:
    levelled = Scatter(tail.stage, tail.by, tail.partitions, tail.boundaries, tail.combine, groups)
    bundles = scattered(bench, kind, sources, levelled)
    runs = [bundles[start : start + run] for start in range(0, len(bundles), run)]
    found = []
    for group, (start, stop) in enumerate(split_evenly(tail.partitions, groups)):
        merged = [merge(bench, some, group) for some in runs]
        found += [read(bench, merged, part) for part in range(stop - start)]
    return found


def merge(bench: Bench, bundles: Sequence[BlockRef], group: int) -> BlockRef:
    slices = tuple(bundle.slice(group) for bundle in bundles)
    block = bench.outcome(source=BlockInput((slices,), pieces=True), tail=Merge("s")).block
    assert block is not None
    return block


def same(one: tuple[Kind, Any], other: tuple[Kind, Any]) -> bool:
    if one[0] != other[0]:
        return False
    if one[0] == "array":
        return one[1].dtype == other[1].dtype and one[1].shape == other[1].shape and bool((one[1] == other[1]).all())
    if one[0] == "table":
        return bool(one[1].equals(other[1], check_metadata=True)) and parquet(one[1]) == parquet(other[1])
    return bool(one[1] == other[1])


def parquet(table: pa.Table) -> bytes:
    return b"".join(encode_part("table", table, WriteOptions("parquet")))


@FIXTURES
@given(
    keys=SOURCES,
    kind=st.sampled_from(["objects", "combined", "table", "array"]),
    targets=st.integers(1, 7),
    groups=st.integers(1, 7),
    run=st.integers(1, 7),
)
def test_two_levels_are_one(
    bench: Bench, keys: list[list[int]], kind: Any, targets: int, groups: int, run: int
) -> None:
    places = iter(range(1000))
    pairs = [[(key, str(next(places))) for key in source] for source in keys]
    given, tail = _given(kind, pairs, targets)
    of: Kind = "objects" if kind == "combined" else kind
    wanted = one_level(bench, of, given, tail)
    found = two_levels(bench, of, given, tail, min(groups, targets), run)
    assert len(found) == len(wanted)
    assert all(map(same, found, wanted)), (found, wanted)


def _given(kind: str, pairs: list[list[tuple[int, str]]], targets: int) -> tuple[list[Any], Scatter]:
    if kind == "array":
        arrays = [np.array([(key, int(value)) for key, value in one], np.int64).reshape(-1, 2) for one in pairs]
        return arrays, Scatter("s", by(first_column), targets)
    if kind == "table":
        schema = pa.schema([("k", pa.int64()), ("v", pa.string()), ("d", DICTIONARY)][: 2 + targets % 2], {"of": "all"})
        rows = [[{"k": key, "v": value, "d": value} for key, value in one] for one in pairs]
        return [pa.Table.from_pylist(one, schema) for one in rows], Scatter("s", By(columns=("k",)), targets)
    return list(pairs), Scatter("s", FIRST, targets, combine=name(concat) if kind == "combined" else "")


def test_sources_of_different_dtypes_may_differ_where_they_do_not_meet(bench: Bench) -> None:
    sources = [np.array([[0, 1]], np.int64), np.array([[9, 2]], np.float64), np.empty((0, 2), np.int32)]
    tail = Scatter("s", by(first_column), 8)
    found, wanted = two_levels(bench, "array", sources, tail, 2, 3), one_level(bench, "array", sources, tail)
    assert {str(value.dtype) for _, value in wanted} == {"int64", "float64"}
    assert all(map(same, found, wanted))


def test_dictionaries_of_sources_stay_apart_though_together_they_outgrow_their_index(bench: Bench) -> None:
    words = [pa.array([f"{source} {place}" for place in range(100)]) for source in range(3)]
    inner = [pa.StructArray.from_arrays([one.dictionary_encode().cast(DICTIONARY)], ["d"]) for one in words]
    sources = [pa.table({"k": pa.array([0] * 100), "v": one}) for one in inner]
    tail = Scatter("s", By(columns=("k",)), 2)
    found, wanted = two_levels(bench, "table", sources, tail, 1, 3), one_level(bench, "table", sources, tail)
    assert all(map(same, found, wanted))


def test_bundles_of_different_kinds_do_not_meet(bench: Bench) -> None:
    tail = Scatter("s", By(columns=("k",)), 1, groups=1)
    (objects,) = scattered(bench, "objects", [[{"k": 1}]], tail)
    (table,) = scattered(bench, "table", [pa.table({"k": [1]})], tail)
    source = BlockInput(((objects.slice(0), table.slice(0)),), pieces=True)
    failure = bench.failure(source=source, tail=Merge("s"))
    assert (failure.failure, failure.stage) == (FailureClass.USER_ERROR, "s")
    assert "different kinds" in failure.message


def test_bundled_records_are_counted_by_their_kind(bench: Bench) -> None:
    tail = Scatter("s", FIRST, 9, groups=3)
    outcome = bench.outcome(source=[(key, 0) for key in range(20)], tail=tail)
    assert outcome.rows == 20
    assert outcome.block is not None
    assert len(outcome.block.parts) == 3


def with_a_lock(record: int) -> tuple[int, Any]:
    return record, threading.Lock() if record == 3 else None


def test_record_that_cannot_be_written_is_named(bench: Bench) -> None:
    failure = bench.failure(per_record(with_a_lock), source=[3], tail=Scatter("s", FIRST, 9, groups=3))
    assert failure.failure is FailureClass.USER_ERROR
    assert "record 0 is a tuple and cannot be pickled" in failure.message
