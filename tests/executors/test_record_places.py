"""Failures name their record by file and line, or by key. Functions can read the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from executors.bench import Bench, call
from executors.operation_functions import FIRST, divide, per_record

from treadle.executors.program import BlockInput, MapPartition, MapRecords, PartitionInput, Reduce, Sort
from treadle.orchestrator.dispatcher.decisions.dispatch import FailedRecords
from treadle.orchestrator.plan.plan import Tolerance
from treadle.primitives.cogroup import JointValues
from treadle.primitives.formats import FileSplit, ReadOptions, plan_splits
from treadle.primitives.stores.input_files import list_files


def split_of(path: Path, options: ReadOptions, split: int = 1 << 20, index: int = 0) -> FileSplit:
    (info,) = list_files(path.as_uri(), None)
    return plan_splits(info, options, split)[index]


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    path = tmp_path / "lines.jsonl"
    path.write_bytes(b"1\n\n2\n{\n3\n0\n4\n")
    return path


@pytest.fixture
def numbers(tmp_path: Path) -> PartitionInput:
    path = tmp_path / "numbers.jsonl"
    path.write_bytes(b"1\n\n2\n0\n")
    return split_of(path, ReadOptions("jsonl"))


def one(record: Any) -> Any:
    return record


def several(record: Any) -> Iterator[Any]:
    yield record
    yield record


def test_a_failure_names_file_and_line(bench: Bench, numbers: PartitionInput) -> None:
    failure = bench.failure(per_record(divide, "a"), source=numbers)
    assert failure.place.endswith("/numbers.jsonl, line 4")
    assert failure.message == "division by zero"
    assert failure.text == f"{failure.place}: ZeroDivisionError: division by zero"
    assert failure.traceback.startswith(f"At record 2 of the input of a ({failure.place}):\n")


def test_a_failure_names_the_row_of_parquet(bench: Bench, tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": [1, 2, 3, 0]}), tmp_path / "n.parquet", row_group_size=2)
    source = split_of(tmp_path / "n.parquet", ReadOptions("parquet"), 1, index=1)
    failure = bench.failure(per_record(_divide_row), source=source)
    assert failure.place.endswith("/n.parquet, row 3")


def _divide_row(record: Any) -> float:
    return 1 / int(record["n"])


def test_a_later_stage_names_the_line_when_each_record_made_one(bench: Bench, numbers: PartitionInput) -> None:
    assert bench.failure(per_record(one, "a"), per_record(divide, "b"), source=numbers).place.endswith("line 4")
    flat = (per_record(several, "a", flat=True), per_record(divide, "b"))
    assert bench.failure(*flat, source=numbers).place.endswith("/numbers.jsonl")


def test_a_later_stage_counts_records_that_were_set_aside(bench: Bench, lines: Path) -> None:
    source = split_of(lines, ReadOptions("jsonl", tolerate=True))
    ops = (MapRecords("a", call(one), tolerate=True), per_record(divide, "b"))
    assert bench.failure(*ops, source=source).place.endswith("/lines.jsonl, line 6")


def test_failed_items_have_file_and_line_and_the_raw_line(bench: Bench, lines: Path) -> None:
    source = split_of(lines, ReadOptions("jsonl", tolerate=True))
    outcome = bench.outcome(MapRecords("a", call(divide), tolerate=True), source=source)
    assert outcome.failed_items is not None
    assert outcome.counts["a"].entered == 6
    (items,) = bench.values(outcome.failed_items)
    assert [(item["position"], item["line"], item["record"]) for item in items] == [(2, 4, "{"), (4, 6, 0)]
    assert {item["uri"] for item in items} == {str(lines)}
    assert "lines.jsonl, line 4" in items[0]["message"]
    assert items[0]["error"] == "treadle.primitives.errors.DataError"


def test_an_unparsable_line_fails_an_attempt_that_is_not_the_last(bench: Bench, lines: Path) -> None:
    source = split_of(lines, ReadOptions("jsonl", tolerate=True))
    failure = bench.failure(MapRecords("a", call(one), tolerate=True), source=source, final=False)
    assert (failure.failure, failure.retryable) == ("user error", True)
    assert "line 4" in failure.message


def test_an_unparsable_line_is_raised_to_a_tolerant_function_of_the_partition(bench: Bench, lines: Path) -> None:
    source = split_of(lines, ReadOptions("jsonl", tolerate=True))
    outcome = bench.outcome(MapPartition("a", call(list), tolerate=True), source=source)
    assert outcome.counts["a"].failed == 1
    assert outcome.failed_items is not None
    ((item,),) = bench.values(outcome.failed_items)
    assert (item["uri"], item["line"], item["position"]) == (str(lines), None, None)
    assert "line 4" in item["message"]


def place_of(record: Any, *, context: Any) -> Any:
    place = context.record
    return place.position, place.line, place.uri.rpartition("/")[2], place.key


def flat_place_of(record: Any, *, context: Any) -> Iterator[Any]:
    yield context.record.line
    yield context.record.line


@pytest.mark.parametrize("tolerate", [False, True])
def test_a_function_asks_where_its_record_stands(bench: Bench, numbers: PartitionInput, tolerate: bool) -> None:
    name = "numbers.jsonl"
    found = bench.records(MapRecords("a", call(place_of), tolerate=tolerate), source=numbers)
    assert found == [(0, 1, name, None), (1, 3, name, None), (2, 4, name, None)]
    flat = bench.records(MapRecords("a", call(flat_place_of), flat=True, tolerate=tolerate), source=numbers)
    assert flat == [1, 1, 3, 3, 4, 4]


def test_a_function_of_a_block_has_position_only(bench: Bench) -> None:
    assert bench.records(per_record(_position), source=["x", "y"]) == [(0, None), (1, None)]


def _position(record: Any, *, context: Any) -> Any:
    return context.record.position, context.record.uri


# -- keys --------------------------------------------------------------------------------------------------------------

PAIRS = [("a", 1), ("b", 0), ("a", 2), ("b", 3)]


def inverse(key: Any, values: Any) -> float:
    return 1 / int(next(values))


def key_of(key: Any, values: Any, *, context: Any) -> Any:
    return context.record.key


def divided(left: float, right: float) -> float:
    return right / left


def inverted(value: float) -> float:
    return 1 / value


@pytest.mark.parametrize(
    "op",
    [
        Reduce("r", "key", uses=call(inverse), by=FIRST),
        Reduce("r", "key", combine=call(divided).function, by=FIRST),
        Reduce("r", "key", combine=call(min).function, finish=call(inverted), by=FIRST),
    ],
    ids=["uses", "combine", "finish"],
)
@pytest.mark.parametrize("sort", [False, True])
def test_a_failed_reduce_names_the_key(bench: Bench, op: Reduce, sort: bool) -> None:
    ops = (Sort("s", FIRST), op) if sort else (op,)
    failure = bench.failure(*ops, source=PAIRS)
    assert (failure.error, failure.place) == ("ZeroDivisionError", "key 'b'")
    assert failure.text == "key 'b': ZeroDivisionError: " + failure.message
    assert failure.traceback.startswith("At key 'b':\n")


def test_a_reduce_asks_for_its_key(bench: Bench) -> None:
    found = bench.records(Reduce("r", "key", uses=call(key_of), by=FIRST), source=PAIRS)
    assert found == [("a", "a"), ("b", "b")]


# -- several inputs ----------------------------------------------------------------------------------------------------


def test_values_of_an_input_have_its_name_with_and_without_what_stands_before_it() -> None:
    values = JointValues({"state.ranks": 1, "inputs.links": 2, "a.state.x": 3, "b.state.x": 4, "pages": 5})
    assert values["state.ranks"] == values["ranks"] == values.get("ranks") == 1
    assert (values["links"], values["pages"], "links" in values, "rank" in values) == (2, 5, True, False)
    assert list(values) == ["state.ranks", "inputs.links", "a.state.x", "b.state.x", "pages"]
    for name in ("x", "rank", "state"):
        with pytest.raises(KeyError, match=r"there is 'state\.ranks', 'inputs\.links'"):
            values[name]
        assert values.get(name) is None


def test_a_joint_reduce_takes_the_short_name(bench: Bench) -> None:
    op = Reduce("r", "key", uses=call(ranks), by=FIRST, names=("state.ranks", "links"))
    (left,), (right,) = (bench.blocks_of([("a", n)]).inputs for n in (1, 2))
    assert bench.records(op, source=BlockInput((left, right), pieces=True)) == [("a", [1, 2])]


def ranks(key: Any, values: Any) -> Any:
    return [*values["ranks"], *values["links"]]


def test_too_many_failures_name_the_first(bench: Bench, numbers: PartitionInput) -> None:
    outcome = bench.outcome(MapRecords("a", call(divide), tolerate=True), source=numbers)
    records = FailedRecords({"a": Tolerance(count=0)})
    assert records.add(outcome)
    assert records.problem().endswith("numbers.jsonl, line 4: ZeroDivisionError: division by zero")
