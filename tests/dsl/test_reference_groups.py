"""docs/semantics.md, shuffle and reduce: every rule in a case computed by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from dsl.reference_cases import interpret, items, values
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from treadle.dsl.reference import ReferenceFailure
from treadle.primitives.errors import DataError
from treadle.primitives.shuffling.keys import stable_hash

# -- shuffle -------------------------------------------------------------------------------------------------------


@given(st.lists(st.integers() | st.text(max_size=2) | st.none() | st.booleans(), max_size=20), st.integers(1, 5))
def test_hash_partition_is_the_stable_hash_modulo_partitions_in_source_order(keys: list[Any], partitions: int) -> None:
    records = [[key, position] for position, key in enumerate(keys)]
    stage = {"type": "shuffle", "input": items(*records, partitions=2), "by": "key", "partitions": partitions}
    expected = [[r for r in records if stable_hash(r[0]) % partitions == target] for target in range(partitions)]
    assert values(interpret({"s": stage}), "s") == expected


def test_default_partitions_equal_the_sum_of_the_inputs_partitions() -> None:
    stages = {
        "one": {"type": "shuffle", "input": items(1, 2, 3, partitions=3), "by": "m:same"},
        "two": {"type": "shuffle", "input": [items(1, partitions=2), items(2, partitions=2)], "by": "m:same"},
        "most": {"type": "shuffle", "input": [{"range": 300}, {"range": 300}], "by": "m:same"},
    }
    result = interpret(stages)
    assert [len(values(result, name)) for name in stages] == [3, 4, 256]


def test_records_keep_the_order_of_input_source_partition_and_position() -> None:
    left = items("a1", "b1", "a2", partitions=2)
    stage = {"type": "shuffle", "input": [left, items("a3", "b2")], "by": "m:first", "partitions": 1}
    assert values(interpret({"s": stage}, {"first": lambda x: x[0]}), "s") == [["a1", "b1", "a2", "a3", "b2"]]
    ordered = interpret({"s": {**stage, "sort": True}}, {"first": lambda x: x[0]})
    assert values(ordered, "s") == [["a1", "a2", "a3", "b1", "b2"]]


def test_sort_ranks_none_numbers_nan_text_bytes_tuples() -> None:
    keys = [("t",), b"b", "s", float("nan"), 2, 1.5, True, None]
    stages = {
        "m": {"type": "map", "input": {"range": len(keys), "partitions": 1}, "uses": "m:key"},
        "s": {"type": "shuffle", "input": "m", "by": "key", "partitions": 1, "sort": True},
    }
    result = interpret(stages, {"key": lambda position: (keys[position], position)})
    assert [position for _, position in values(result, "s")[0]] == [7, 6, 5, 4, 3, 2, 1, 0]


def test_range_boundary_belongs_to_the_right_and_equal_ones_leave_empty_partitions() -> None:
    shuffle = {"type": "shuffle", "input": items(1, 5, 3, 9), "by": "m:same", "partitions": 4}
    result = interpret({"s": {**shuffle, "partitioner": {"type": "range", "boundaries": [3, 5, 5]}}})
    assert values(result, "s") == [[1], [3], [], [5, 9]]


@pytest.mark.parametrize("boundaries", [[3], [5, 3, 9], [1, 2, 3, 4]])
def test_boundaries_must_be_one_less_than_partitions_and_ascending(boundaries: list[int]) -> None:
    shuffle = {"type": "shuffle", "input": items(1), "by": "m:same", "partitions": 4}
    with pytest.raises(ReferenceFailure) as caught:
        interpret({"s": {**shuffle, "partitioner": {"type": "range", "boundaries": boundaries}}})
    assert isinstance(caught.value.error, DataError)


def test_boundaries_may_come_from_a_broadcast_or_a_sample() -> None:
    shuffle = {"type": "shuffle", "input": items(4, 1, 3, 2), "by": "m:same", "partitions": 2, "sort": True}
    stages = {
        "cuts": {"type": "reduce", "input": items(0), "per": "all", "uses": "m:two"},
        "given": {"type": "broadcast", "input": "cuts"},
        "a": {**shuffle, "partitioner": {"type": "range", "boundaries": "given"}},
        "b": {**shuffle, "partitioner": {"type": "range"}},
    }
    result = interpret(stages, {"two": lambda _: [2]})
    assert values(result, "a") == [[1], [2, 3, 4]]
    assert values(result, "b") == [[1, 2], [3, 4]]


def test_combine_folds_once_per_source_partition_and_key_at_the_first_place() -> None:
    records = [["a", "1"], ["b", "2"], ["a", "3"], ["a", "4"]]
    shuffle = {"type": "shuffle", "input": items(*records, partitions=2), "by": "key", "combine": "m:show"}
    result = interpret({"s": {**shuffle, "partitions": 1}})
    assert values(result, "s") == [[("a", "1"), ("b", "2"), ("a", "(34)")]]


def test_record_without_a_key_is_refused() -> None:
    with pytest.raises(ReferenceFailure) as caught:
        interpret({"s": {"type": "shuffle", "input": items("ab"), "by": "key"}})
    assert isinstance(caught.value.error, DataError)


def test_vectorised_key_takes_a_whole_array_and_columns_name_a_tables_columns() -> None:
    def vectorised(rows: NDArray[Any]) -> NDArray[Any]:
        return rows[:, 0]

    stages = {
        "rows": {"type": "map", "input": {"range": 4, "partitions": 1}, "per": "partition", "uses": "m:rows"},
        "a": {"type": "shuffle", "input": "rows", "by": "m:vectorised", "partitions": 1, "sort": True},
        "table": {"type": "map", "input": "rows", "per": "partition", "uses": "m:table"},
        "b": {"type": "shuffle", "input": "table", "by": ["y", "x"], "partitions": 1, "sort": True},
    }
    functions: dict[str, Callable[..., Any]] = {
        "rows": lambda r: np.array([(3 - i, i) for i in r]),
        "vectorised": vectorised,
        "table": lambda rows: pa.table({"x": rows[:, 0], "y": rows[:, 1] % 2}),
    }
    result = interpret(stages, functions)
    assert values(result, "a")[0].tolist() == [[0, 3], [1, 2], [2, 1], [3, 0]]
    assert values(result, "b")[0].to_pydict() == {"x": [1, 3, 0, 2], "y": [0, 0, 1, 1]}


# -- reduce --------------------------------------------------------------------------------------------------------


def shuffled(*records: Any, **options: Any) -> dict[str, Any]:
    return {"type": "shuffle", "input": items(*records), "partitions": 1, **options}


def test_per_key_emits_at_the_first_occurrence_with_the_first_key() -> None:
    stages = {
        "s": shuffled([1, "a"], ["x", "b"], [1.0, "c"], by="key"),
        "r": {"type": "reduce", "input": "s", "per": "key", "combine": "m:show"},
        "u": {"type": "reduce", "input": "s", "per": "key", "uses": "m:count"},
    }
    result = interpret(stages, {"count": lambda key, values: (key, list(values))})
    assert values(result, "r") == [[(1, "(ac)"), ("x", "b")]]
    assert type(values(result, "r")[0][0][0]) is int
    assert values(result, "u") == [[(1, (1, ["a", "c"])), ("x", ("x", ["b"]))]]


def test_per_key_over_a_key_function_reduces_whole_records_and_sort_orders_the_keys() -> None:
    stages = {
        "s": shuffled("bb", "a", "b", by="m:first", sort=True),
        "r": {"type": "reduce", "input": "s", "per": "key", "combine": "m:show"},
    }
    assert values(interpret(stages, {"first": lambda x: x[0]}), "r") == [[("a", "a"), ("b", "(bbb)")]]


def test_per_key_of_several_inputs_keeps_their_values_apart() -> None:
    stages = {
        "left": {"type": "map", "input": items(["a", 1], ["b", 2]), "uses": "m:same"},
        "right": {"type": "map", "input": items(["c", 3], ["a", 4]), "uses": "m:same"},
        "s": {"type": "shuffle", "input": ["left", "right"], "by": "key", "partitions": 1},
        "r": {"type": "reduce", "input": "s", "per": "key", "uses": "m:join"},
    }
    join = lambda key, values: {name: list(each) for name, each in values.items()}  # noqa: E731
    expected = [
        ("a", {"left": [1], "right": [4]}),
        ("b", {"left": [2], "right": []}),
        ("c", {"left": [], "right": [3]}),
    ]
    assert values(interpret(stages, {"join": join}), "r") == [expected]


def test_per_key_of_several_sorted_inputs_emits_in_key_order() -> None:
    stages = {
        "s": {"type": "shuffle", "input": [items("c"), items("b", "a")], "by": "m:same", "partitions": 1, "sort": True},
        "r": {"type": "reduce", "input": "s", "per": "key", "uses": "m:join"},
    }
    join = lambda key, values: {name: list(each) for name, each in values.items()}  # noqa: E731
    expected = [("a", {"0": [], "1": ["a"]}), ("b", {"0": [], "1": ["b"]}), ("c", {"0": ["c"], "1": []})]
    assert values(interpret(stages, {"join": join}), "r") == [expected]


def test_per_key_over_nothing_gives_nothing() -> None:
    stages = {"s": shuffled(by="key"), "r": {"type": "reduce", "input": "s", "per": "key", "combine": "m:add"}}
    assert values(interpret(stages), "r") == [[]]


def test_per_partition_gives_one_record_for_each() -> None:
    source = items("a", "b", "c", partitions=2)
    stages = {
        "fold": {"type": "reduce", "input": source, "per": "partition", "combine": "m:show", "initial": "0"},
        "uses": {"type": "reduce", "input": source, "per": "partition", "uses": "m:listed"},
        "empty": {
            "type": "reduce",
            "input": items(partitions=1),
            "per": "partition",
            "combine": "m:show",
            "initial": "0",
        },
    }
    result = interpret(stages)
    assert values(result, "fold") == [["(0(ab))"], ["(0c)"]]
    assert values(result, "uses") == [[["a", "b"]], [["c"]]]
    assert values(result, "empty") == [["0"]]


def test_tree_folds_consecutive_groups_of_the_partitions_that_are_not_empty() -> None:
    source = {"type": "map", "input": items(*"abcdefg", partitions=7), "uses": "m:kept", "flat": True}
    fold = {"type": "reduce", "input": "a", "per": "all", "combine": "m:show", "initial": "0", "finish": "m:mark"}
    functions = {"kept": lambda x: [] if x == "c" else [x], "mark": lambda acc: acc + "!"}
    result = interpret({"a": source, "r": {**fold, "fanIn": 2}}, functions)
    assert values(result, "r") == [["(0(((ab)(de))(fg)))!"]]
    assert values(interpret({"a": source, "r": fold}, functions), "r") == [["(0(((((ab)d)e)f)g))!"]]


def test_single_leaf_still_gets_initial_and_finish() -> None:
    fold = {
        "type": "reduce",
        "input": items("a"),
        "per": "all",
        "combine": "m:show",
        "initial": "0",
        "finish": "m:mark",
    }
    assert values(interpret({"r": fold}, {"mark": lambda acc: acc + "!"}), "r") == [["(0a)!"]]


def test_per_all_over_nothing() -> None:
    stages = {
        "combine": {"type": "reduce", "input": items(), "per": "all", "combine": "m:add"},
        "initial": {"type": "reduce", "input": items(), "per": "all", "combine": "m:add", "initial": None},
        "uses": {"type": "reduce", "input": items(), "per": "all", "uses": "m:listed"},
    }
    result = interpret(stages)
    assert [values(result, name) for name in stages] == [[[]], [[None]], [[[]]]]


def test_values_give_whole_source_partitions() -> None:
    def sizes(values: Any) -> list[Any]:
        return [next(values), [len(partition) for partition in values.partitions()]]

    stage = {"type": "reduce", "input": {"range": 7, "partitions": 3}, "per": "all", "uses": "m:sizes"}
    assert values(interpret({"r": stage}, {"sizes": sizes}), "r") == [[[0, [2, 2]]]]
