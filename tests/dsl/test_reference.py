"""docs/semantics.md, data and map: every rule in a case computed by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from dsl.reference_cases import Stages, interpret, items, values

from treadle.dsl.reference import ReferenceFailure
from treadle.primitives.errors import UsageError

# -- data ----------------------------------------------------------------------------------------------------------


def test_items_and_ranges_are_cut_evenly_with_the_larger_partitions_first() -> None:
    stages = {
        "a": {"type": "map", "input": {"range": 5, "partitions": 3}, "uses": "m:same"},
        "b": {"type": "map", "input": {"range": 300}, "uses": "m:same"},
        "c": {"type": "map", "input": {"items": [7, 8]}, "uses": "m:same"},
    }
    result = interpret(stages)
    assert values(result, "a") == [[0, 1], [2, 3], [4]]
    assert len(values(result, "b")) == 256
    assert values(result, "c") == [[7], [8]]


def test_empty_input_is_one_empty_partition() -> None:
    assert values(interpret({"a": {"type": "map", "input": {"items": []}, "uses": "m:same"}}), "a") == [[]]


def test_text_files_are_partitions_in_the_order_of_their_names(tmp_path: Path) -> None:
    (tmp_path / "b.txt").write_bytes(b"three\r\nfour")
    (tmp_path / "a.txt").write_bytes(b"one\ntwo\n")
    (tmp_path / "c.txt").write_bytes(b"")
    stage = {"type": "map", "input": {"uri": "*.txt", "format": "text"}, "uses": "m:same"}
    assert values(interpret({"a": stage}, base=tmp_path), "a") == [["one", "two"], ["three", "four"], []]


def test_whole_text_partition_is_one_string(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"one\ntwo\n")
    stage = {"type": "map", "input": {"uri": "a.txt", "format": "text"}, "per": "partition", "whole": True}
    result = interpret({"a": {**stage, "uses": "m:size"}}, {"size": len}, base=tmp_path)
    assert values(result, "a") == [[8]]


def test_text_as_a_table_has_one_column_of_lines(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"one\r\ntwo\n")
    (tmp_path / "b.txt").write_bytes(b"")
    source = {"uri": "*.txt", "format": "text", "table": True}
    stages = {
        "rows": {"type": "map", "input": source, "uses": "m:same"},
        "tables": {"type": "map", "input": source, "uses": "m:schema", "per": "partition"},
        "groups": {"type": "shuffle", "input": source, "by": ["line"], "partitions": 1},
    }
    result = interpret(stages, {"schema": lambda table: str(table.schema)}, base=tmp_path)
    assert values(result, "rows") == [[{"line": "one"}, {"line": "two"}], []]
    assert values(result, "tables") == [["line: large_string"]] * 2
    (groups,) = values(result, "groups")
    assert groups.to_pylist() == [{"line": "one"}, {"line": "two"}]


def test_file_that_is_not_there_fails_the_stage(tmp_path: Path) -> None:
    stage = {"type": "map", "input": {"uri": "*.txt", "format": "text"}, "uses": "m:same"}
    with pytest.raises(ReferenceFailure) as caught:
        interpret({"a": stage}, base=tmp_path)
    assert (caught.value.stage, type(caught.value.error)) == ("a", UsageError)


def test_dataset_and_list_inputs_are_data() -> None:
    stages = {
        "a": {"type": "map", "input": "inputs.d", "uses": "m:same"},
        "b": {"type": "map", "input": "inputs.l", "uses": "m:same"},
    }
    declared = {"d": {"type": "dataset", "required": True}, "l": {"type": "list", "default": [5]}}
    result = interpret(stages, inputs=declared, given={"d": {"range": 2, "partitions": 1}})
    assert (values(result, "a"), values(result, "b")) == ([[0, 1]], [[5]])


# -- map -----------------------------------------------------------------------------------------------------------


def test_flat_result_is_spliced_and_others_are_records() -> None:
    def annotated(x: int) -> Iterator[int]:
        yield from [x, x]

    source = items(1, 2)
    stages = {
        "flat": {"type": "map", "input": source, "uses": "m:twice", "flat": True},
        "annotated": {"type": "map", "input": source, "uses": "m:annotated"},
        "tuple": {"type": "map", "input": source, "uses": "m:twice"},
        "none": {"type": "map", "input": source, "uses": "m:none"},
    }
    result = interpret(stages, {"twice": lambda x: (x, x), "annotated": annotated, "none": lambda x: None})
    assert values(result, "flat") == values(result, "annotated") == [[1, 1, 2, 2]]
    assert values(result, "tuple") == [[(1, 1), (2, 2)]]
    assert values(result, "none") == [[None, None]]


def test_generator_without_a_word_about_flat_is_refused() -> None:
    for per in ("record", "partition"):
        stage = {"type": "map", "input": items(1), "per": per, "uses": "m:lazy"}
        with pytest.raises(ReferenceFailure, match="generator"):
            interpret({"a": stage}, {"lazy": lambda x: (y for y in [x])})


def test_function_per_partition_is_called_on_empty_ones_and_per_record_is_not() -> None:
    stages = {
        "a": {"type": "map", "input": items(1, partitions=2), "per": "partition", "uses": "m:listed"},
        "b": {"type": "map", "input": items(1, partitions=2), "uses": "m:same"},
    }
    result = interpret(stages)
    assert values(result, "a") == [[[1]], [[]]]
    assert values(result, "b") == [[1], []]


def test_returned_array_or_table_is_the_partition_and_a_record_is_a_row() -> None:
    stages = {
        "array": {"type": "map", "input": {"range": 3, "partitions": 1}, "per": "partition", "uses": "m:array"},
        "scalar": {"type": "map", "input": "array", "per": "partition", "uses": "m:sum"},
        "table": {"type": "map", "input": "array", "per": "partition", "uses": "m:table"},
        "rows": {"type": "map", "input": "table", "uses": "m:same"},
        "elements": {"type": "map", "input": "array", "uses": "m:int"},
    }
    functions: dict[str, Callable[..., Any]] = {
        "array": lambda records: np.array(list(records)),
        "sum": lambda array: np.asarray(array.sum()),
        "table": lambda array: pa.table({"x": array}),
        "int": int,
    }
    result = interpret(stages, functions)
    assert [result.datasets[name][0].kind for name in stages] == ["array", "objects", "table", "objects", "objects"]
    assert values(result, "scalar") == [[np.asarray(3)]]
    assert values(result, "rows") == [[{"x": 0}, {"x": 1}, {"x": 2}]]
    assert values(result, "elements") == [[0, 1, 2]]


def test_partitions_of_different_kinds_may_not_meet_unless_empty() -> None:
    def odd(records: Iterator[int]) -> Any:
        held = list(records)
        return np.array(held) if held and held[0] else []

    def stages(*records: int) -> Stages:
        return {
            "a": {
                "type": "map",
                "input": items(*records, partitions=2),
                "per": "partition",
                "uses": "m:odd",
                "flat": True,
            },
            "b": {"type": "broadcast", "input": "a"},
        }

    assert interpret(stages(1), {"odd": odd}).datasets["b"][0].value[0].tolist() == [1]
    with pytest.raises(ReferenceFailure, match="different kinds"):
        interpret(
            {**stages(1, 0), "a": {**stages(1, 0)["a"], "uses": "m:mixed"}},
            {"mixed": lambda records: np.ones(1) if next(records) else [1]},
        )


def test_batch_recuts_every_partition_by_records_and_bytes() -> None:
    source = {"range": 7, "partitions": 2}
    stages = {
        "items": {"type": "map", "input": source, "per": "partition", "uses": "m:listed", "batch": {"maxItems": 3}},
        "bytes": {"type": "map", "input": source, "per": "partition", "uses": "m:listed", "batch": {"maxBytes": "1B"}},
        "empty": {
            "type": "map",
            "input": {"items": []},
            "per": "partition",
            "uses": "m:listed",
            "batch": {"maxItems": 3},
        },
    }
    result = interpret(stages)
    assert values(result, "items") == [[[0, 1, 2]], [[3]], [[4, 5, 6]]]
    assert values(result, "bytes") == [[[number]] for number in range(7)]
    assert values(result, "empty") == [[[]]]


def test_function_cannot_change_the_records_of_other_readers() -> None:
    def spoil(record: list[int], given: list[int]) -> int:
        record.append(0)
        given.append(0)
        return len(record) + len(given)

    stages = {
        "source": {"type": "map", "input": items([1], [2], partitions=2), "uses": "m:same"},
        "a": {"type": "map", "input": "source", "uses": "m:spoil", "with": {"given": [1]}},
        "b": {"type": "map", "input": "source", "uses": "m:spoil", "with": {"given": [1]}},
    }
    result = interpret(stages, {"spoil": spoil})
    assert values(result, "source") == [[[1]], [[2]]]
    assert values(result, "a") == values(result, "b") == [[4], [4]]


def test_array_is_read_only_for_the_function() -> None:
    def spoil(array: Any) -> Any:
        array[0] = 9
        return array

    stages = {
        "a": {"type": "map", "input": items(1), "per": "partition", "uses": "m:array"},
        "b": {"type": "map", "input": "a", "per": "partition", "uses": "m:spoil"},
    }
    with pytest.raises(ReferenceFailure, match="read-only"):
        interpret(stages, {"array": lambda records: np.array(list(records)), "spoil": spoil})


def test_array_in_a_record_is_read_only_for_the_function() -> None:
    def spoil(record: Any) -> Any:
        record["a"][0][0] = 9
        return record

    stages = {
        "a": {"type": "map", "input": items(1), "uses": "m:array"},
        "b": {"type": "map", "input": "a", "uses": "m:spoil"},
    }
    with pytest.raises(ReferenceFailure, match="read-only"):
        interpret(stages, {"array": lambda record: {"a": [np.array([record])]}, "spoil": spoil})
