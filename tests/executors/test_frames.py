"""A function's results in the data frames of other libraries are tables, also for the reference interpreter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from executors.bench import Bench, call
from frames import Frame, Series

from treadle.dsl.model import Spec
from treadle.dsl.reference import run_reference
from treadle.executors import Result
from treadle.executors.program import By, MapPartition, MapRecords, Sample, Scatter, Sort
from treadle.primitives.functions import reference

COLUMNS: dict[str, list[Any]] = {"shop": ["b", "a", "b"], "n": [1, 2, 3]}
ROWS = [{"shop": "b", "n": 1}, {"shop": "a", "n": 2}, {"shop": "b", "n": 3}]


def to_frame(records: Any) -> Frame:
    return Frame(COLUMNS)


def to_measured_frame(records: Any) -> Result:
    return Result(Frame(COLUMNS), metrics={"n": 1})


def rows_of(record: Any) -> Iterator[Any]:
    return Frame(COLUMNS)  # type: ignore[return-value]


def shops(table: pa.Table) -> Series:
    return Frame(table.to_pydict())["shop"]


def expected(stages: dict[str, Any], stage: str) -> list[tuple[str, Any]]:
    document = {"apiVersion": "treadle/v1", "name": "frames", "stages": stages}
    result = run_reference(Spec.model_validate(document, by_alias=True, by_name=False))
    return [(one.kind, one.value.to_pylist() if one.kind == "table" else one.value) for one in result.datasets[stage]]


@pytest.mark.parametrize("tolerate", [False, True])
@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("function", [to_frame, to_measured_frame])
def test_a_frame_from_a_partition_is_a_table(bench: Bench, function: Any, flat: bool, tolerate: bool) -> None:
    metrics = {"n": "sum"} if function is to_measured_frame else {}
    op = MapPartition("a", call(function), flat=flat, tolerate=tolerate, metrics=metrics)
    outcome = bench.outcome(op, source=[1])
    assert (outcome.kind, outcome.rows) == ("table", 3)
    assert bench.records(op, source=[1]).to_pylist() == ROWS
    stage: dict[str, Any] = {
        "type": "map",
        "input": {"items": [1]},
        "per": "partition",
        "uses": reference(function),
        "flat": flat,
    }
    stage |= {"metrics": metrics} if metrics else {}
    assert expected({"a": stage}, "a") == [("table", ROWS)]


@pytest.mark.parametrize("tolerate", [False, True])
def test_a_flat_frame_gives_its_rows(bench: Bench, tolerate: bool) -> None:
    op = MapRecords("a", call(rows_of), flat=True, tolerate=tolerate)
    assert bench.records(op, source=[1]) == ROWS
    stage = {"type": "map", "input": {"items": [1]}, "uses": reference(rows_of)}
    assert expected({"a": stage}, "a") == [("objects", ROWS)]


def test_a_frame_has_keys_by_column(bench: Bench) -> None:
    ops = (MapPartition("a", call(to_frame)), Sort("s", By(columns=("shop",))))
    assert bench.records(*ops, source=[1])["n"].to_pylist() == [2, 1, 3]


def test_a_series_of_keys_is_taken_by_position(bench: Bench) -> None:
    by = By(function=reference(shops))
    ops = (MapPartition("a", call(to_frame)), Sort("s", by))
    assert bench.records(*ops, source=[1])["n"].to_pylist() == [2, 1, 3]
    (sampled,) = bench.records(MapPartition("a", call(to_frame)), Sample("s", by), source=[1])
    assert sampled == (["b", "a", "b"], 3)


def test_frame_among_records_is_refused_as_a_key(bench: Bench) -> None:
    tail = Scatter("s", By(columns=("shop",)), 2)
    failure = bench.failure(MapRecords("a", call(to_frame)), source=[1], tail=tail)
    assert failure.failure == "user error"
    assert "per: partition" in failure.message
