"""A memory budget changes speed only: every operation and every tail gives the same result as without it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from executors.bench import Bench, call
from executors.operation_functions import FIRST, by, concat, first_column, name, per_record, twice
from executors.spill_strategies import PAIRS, known
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from treadle.executors.program import (
    BlockInput,
    By,
    Cut,
    Cuts,
    Discard,
    Keep,
    MapPartition,
    Merge,
    Op,
    PartOutput,
    Reduce,
    Sample,
    Scatter,
    Sort,
    Tail,
    Value,
)
from treadle.primitives.encoding.references import BlockRef
from treadle.primitives.formats import WriteOptions, encode_part, tables

EXAMPLES = settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
TINY = [1, 700]
"""Bytes of records that may wait: none, or a few."""


@pytest.fixture
def roomy(tmp_path: Path) -> Bench:
    return Bench(tmp_path / "store")


@pytest.fixture(params=TINY)
def tight(tmp_path: Path, request: pytest.FixtureRequest) -> Bench:
    return Bench(tmp_path / "store", room=request.param)


def as_list(key: Any, values: Iterator[Any]) -> list[Any]:
    return list(values)


def first_only(key: Any, values: Iterator[Any]) -> Any:
    return next(values)


def counted(values: Iterator[Any]) -> int:
    return sum(1 for _ in values)


def lists(values: Any) -> list[Any]:
    return [list(part) for part in values.partitions()]


def backwards(key: Any, values: dict[str, Iterator[Any]]) -> list[Any]:
    return [(one, list(values[one])) for one in sorted(values, reverse=True)]


def pair_up(left: Any, right: Any) -> Any:
    return (left, right)


def parity(record: Any) -> int:
    return int(record[1]) % 2


def unsplit(records: Iterator[Any]) -> Iterator[Any]:
    yield from records


def same(roomy: Bench, tight: Bench, *ops: Op, source: Any, tail: Tail = Keep(), **settings: Any) -> None:
    """The outcomes agree in every visible part."""
    wanted = roomy.outcome(*ops, source=source, tail=tail, **settings)
    found = tight.outcome(*ops, source=source, tail=tail, **settings)
    assert (found.kind, found.rows, found.metrics, found.counts) == (
        wanted.kind,
        wanted.rows,
        wanted.metrics,
        wanted.counts,
    )
    if wanted.block is None or found.block is None:
        assert found.block is wanted.block
        return
    assert [part.rows for part in found.block.parts] == [part.rows for part in wanted.block.parts]
    for ours, theirs in zip(tight.values(found.block), roomy.values(wanted.block), strict=True):
        assert known(ours) == known(theirs)


def blocks(bench: Bench, sources: list[Any], kind: Any = "objects") -> BlockInput:
    return bench.blocks_of(*sources, kind=kind)


PER_KEY: list[tuple[Op, ...]] = [
    (Reduce("r", "key", uses=call(as_list), by=FIRST),),
    (Reduce("r", "key", uses=call(first_only), by=FIRST),),
    (Reduce("r", "key", uses=call(as_list), by=by(parity)),),
    (Reduce("r", "key", combine=name(pair_up), by=FIRST),),
    (Reduce("r", "key", combine=name(pair_up), initial=Value([]), by=FIRST),),
    (Sort("s", FIRST),),
    (Sort("s", FIRST), Reduce("r", "key", uses=call(as_list), by=FIRST, sorted=True)),
    (Sort("s", FIRST), Reduce("r", "key", combine=name(pair_up), by=FIRST, sorted=True)),
    (Sample("s", FIRST),),
    (MapPartition("m", call(unsplit), flat=True), per_record(twice, flat=True)),
]


@pytest.mark.parametrize("ops", PER_KEY, ids=range(len(PER_KEY)))
@EXAMPLES
@given(sources=st.lists(PAIRS, min_size=1, max_size=3))
def test_operations(roomy: Bench, tight: Bench, ops: tuple[Op, ...], sources: list[Any]) -> None:
    same(roomy, tight, *ops, source=blocks(roomy, sources))


TAILS: list[Tail] = [
    Keep(),
    Discard(),
    Cut(max_items=3),
    Cut(max_bytes=40),
    Cut(max_items=4, max_bytes=60),
    Scatter("s", FIRST, 3),
    Scatter("s", FIRST, 5, groups=2),
    Scatter("s", FIRST, 3, combine=name(pair_up)),
    Scatter("s", FIRST, 3, boundaries=Value([1, "a"])),
]


@pytest.mark.parametrize("tail", TAILS, ids=range(len(TAILS)))
@EXAMPLES
@given(sources=st.lists(PAIRS, min_size=1, max_size=3))
def test_tails(roomy: Bench, tight: Bench, tail: Tail, sources: list[Any]) -> None:
    same(roomy, tight, source=blocks(roomy, sources), tail=tail)


@pytest.mark.parametrize("in_order", [False, True])
@EXAMPLES
@given(left=PAIRS, right=PAIRS)
def test_inputs_kept_apart(roomy: Bench, tight: Bench, in_order: bool, left: list[Any], right: list[Any]) -> None:
    source = BlockInput((blocks(roomy, [left]).inputs[0], blocks(roomy, [right]).inputs[0]))
    reduce = Reduce("r", "key", uses=call(backwards), by=FIRST, names=("l", "r"), sorted=in_order)
    same(roomy, tight, *((Sort("s", FIRST),) if in_order else ()), reduce, source=source)


NUMBERS = st.lists(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 99)), max_size=20), min_size=1, max_size=3)
COLUMNS: list[tuple[tuple[Op, ...], Tail]] = [
    ((), Keep()),
    ((), Cut(max_items=3)),
    ((), Cut(max_bytes=50)),
    ((Sort("s", FIRST),), Keep()),
    ((), Scatter("s", FIRST, 3)),
    ((), Scatter("s", by(first_column), 3, groups=2)),
    ((Reduce("r", "key", uses=call(as_list), by=FIRST),), Keep()),
    ((Sample("s", FIRST),), Keep()),
]


@pytest.mark.parametrize(("ops", "tail"), COLUMNS, ids=range(len(COLUMNS)))
@EXAMPLES
@given(sources=NUMBERS)
def test_arrays(roomy: Bench, tight: Bench, ops: tuple[Op, ...], tail: Tail, sources: list[Any]) -> None:
    arrays = [np.array(one, dtype="i8").reshape(-1, 2) for one in sources]
    same(roomy, tight, *ops, source=blocks(roomy, arrays, "array"), tail=tail)


@pytest.mark.parametrize(("ops", "tail"), COLUMNS, ids=range(len(COLUMNS)))
@EXAMPLES
@given(sources=NUMBERS)
def test_tables(roomy: Bench, tight: Bench, ops: tuple[Op, ...], tail: Tail, sources: list[Any]) -> None:
    columns = By(columns=("k",))
    tables = [pa.table({"k": [str(k) for k, _ in one], "n": pa.array([n for _, n in one], "i8")}) for one in sources]
    same(
        roomy,
        tight,
        *(_with(op, columns) for op in ops),
        source=blocks(roomy, tables, "table"),
        tail=_with(tail, columns),
    )


def _with(one: Any, columns: By) -> Any:
    import msgspec

    return msgspec.structs.replace(one, by=columns) if getattr(one, "by", None) else one


@EXAMPLES
@given(sources=st.lists(PAIRS, min_size=2, max_size=3), groups=st.integers(1, 3))
def test_both_levels_of_a_wide_shuffle(roomy: Bench, tight: Bench, sources: list[Any], groups: int) -> None:
    first = Scatter("s", FIRST, 5, groups=groups)
    scattered = [
        bench.outcome(source=pairs, tail=first).block
        for bench, pairs in zip([roomy, tight, roomy], sources, strict=False)
    ]
    for group in range(groups):
        given = BlockInput((tuple(one.slice(group) for one in scattered if one is not None),), pieces=True)
        same(roomy, tight, source=given, tail=Merge("s"))


@EXAMPLES
@given(sources=st.lists(PAIRS, min_size=1, max_size=3))
def test_value_written_in_pieces_is_read_whole(roomy: Bench, tight: Bench, sources: list[Any]) -> None:
    block = tight.outcome(source=blocks(roomy, sources)).block
    assert block is not None
    given = BlockInput(((block.slice(0), block.slice(0)),))
    same(roomy, tight, Reduce("r", "partition", uses=call(counted)), source=given)
    same(roomy, tight, Reduce("r", "partition", uses=call(lists)), source=given)
    same(roomy, tight, Sort("s", FIRST), source=given)


# -- outputs -----------------------------------------------------------------------------------------------------------


def written(bench: Bench, folder: Path, source: Any, options: WriteOptions, tail: Tail) -> tuple[Any, bytes]:
    output = PartOutput(folder.as_uri(), options)
    outcome = bench.outcome(source=source, tail=tail, output=output)
    assert outcome.part is not None
    return (outcome.part, outcome.rows), (folder / outcome.part.name).read_bytes()


TEXTS = [f"line {number}" for number in range(50)]
DICTS = [{"a": number, "b": "x,y" if number % 3 else None} for number in range(50)]
ARRAY = np.arange(120, dtype="f8").reshape(-1, 2)
TABLE = pa.table({"a": list(range(60)), "b": [str(number) for number in range(60)]})
OUTPUTS: list[tuple[str, Any, WriteOptions]] = [
    ("objects", TEXTS, WriteOptions("text")),
    ("objects", DICTS, WriteOptions("jsonl")),
    ("objects", DICTS, WriteOptions("csv")),
    ("objects", [(1, "a")] * 30, WriteOptions("csv", (("n", "int64"), ("s", "string")), header=False)),
    ("objects", [b"abcd"] * 40, WriteOptions("fixed")),
    ("objects", DICTS, WriteOptions("parquet", (("a", "int64"), ("b", "string")))),
    ("array", ARRAY, WriteOptions("npy")),
    ("array", ARRAY, WriteOptions("csv")),
    ("array", ARRAY, WriteOptions("parquet")),
    ("table", TABLE, WriteOptions("csv")),
    ("table", TABLE, WriteOptions("jsonl")),
    ("table", TABLE, WriteOptions("parquet")),
]


@pytest.mark.parametrize("tail", [Keep(), Discard(), Cut(max_items=7)], ids=["keep", "discard", "cut"])
@pytest.mark.parametrize(("kind", "value", "options"), OUTPUTS)
def test_output_parts_have_the_same_bytes(
    roomy: Bench, tight: Bench, tmp_path: Path, kind: Any, value: Any, options: WriteOptions, tail: Tail
) -> None:
    third = len(value) // 3
    cut = [value.slice(0, third), value.slice(third)] if kind == "table" else [value[:third], value[third:]]
    source = blocks(roomy, cut, kind)
    wanted = written(roomy, tmp_path / "roomy", source, options, tail)
    assert written(tight, tmp_path / "tight", source, options, tail) == wanted


@pytest.mark.parametrize(("kind", "value", "options"), [one for one in OUTPUTS if one[2].format == "parquet"])
def test_row_groups_do_not_show_pieces(
    roomy: Bench, tight: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Any, value: Any, options: Any
) -> None:
    monkeypatch.setattr(tables, "GROUP_ROWS", 11)
    source = blocks(roomy, [value[:17], value[17:]] if kind != "table" else [value.slice(0, 17), value.slice(17)], kind)
    wanted = written(roomy, tmp_path / "roomy", source, options, Keep())
    assert written(tight, tmp_path / "tight", source, options, Keep()) == wanted


def test_parquet_does_not_show_how_a_table_was_cut() -> None:
    rows = 100_000
    table = pa.table({"a": list(range(rows)), "b": [str(number * 7919) for number in range(rows)]})
    cut = pa.concat_tables([table.slice(start, 7001) for start in range(0, rows, 7001)])
    options = WriteOptions("parquet")
    assert b"".join(encode_part("table", cut, options)) == b"".join(encode_part("table", table, options))


# -- the block ------------------------------------------------------------------------------------------------------


def test_a_block_in_pieces_is_checked_like_any_other(tmp_path: Path) -> None:
    bench = Bench(tmp_path, room=100)
    outcome = bench.outcome(Sort("s", FIRST), source=[(number % 7, number) for number in range(500)])
    block = outcome.block
    assert isinstance(block, BlockRef)
    assert outcome.spilled > 0
    assert len(list(bench.blocks.pieces(block.slice(0)))) > 5
    path = tmp_path / f"runs/{bench.job.run}/blocks/{block.name}"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.chmod(0o600)
    path.write_bytes(data)
    failure = bench.failure(Sort("s", FIRST), source=BlockInput(((block.slice(0),),)))
    assert failure.lost == (block.name,)


def test_what_fits_is_not_spilled(tmp_path: Path) -> None:
    outcome = Bench(tmp_path, room=1 << 20).outcome(Sort("s", FIRST), source=[(n, n) for n in range(1000)])
    assert outcome.spilled == 0


def test_concat_is_folded_in_order(roomy: Bench, tight: Bench) -> None:
    pairs = [(number % 5, str(number)) for number in range(100)]
    op = Reduce("r", "key", combine=name(concat), by=FIRST)
    assert tight.records(op, source=pairs) == roomy.records(op, source=pairs)


def test_boundaries_of_more_samples_than_fit(roomy: Bench, tight: Bench) -> None:
    samples = [([number, number + 1], 10) for number in range(100)]
    same(roomy, tight, Cuts("c", 5), source=samples)
