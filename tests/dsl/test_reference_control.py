"""docs/semantics.md, broadcast, when, loop, failures, outputs: every rule in a case computed by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dsl.reference_cases import interpret, items, values

from treadle.dsl import task
from treadle.dsl.reference import ReferenceFailure
from treadle.primitives.errors import UsageError
from treadle.primitives.result import Result
from treadle.primitives.shuffling.seeds import rng

# -- broadcast, barrier, when --------------------------------------------------------------------------------------


def test_broadcast_is_the_record_of_a_reduce_of_all_and_the_list_of_anything_else() -> None:
    stages = {
        "sum": {"type": "reduce", "input": items(1, 2), "per": "all", "uses": "m:total"},
        "held": {"type": "barrier", "input": "sum"},
        "one": {"type": "broadcast", "input": "held"},
        "list": {"type": "broadcast", "input": items(1, 2, partitions=2)},
        "a": {
            "type": "map",
            "input": items(0),
            "uses": "m:both",
            "with": {"x": "${{ stages.one }}", "y": "${{ stages.list }}"},
        },
    }
    assert values(interpret(stages, {"both": lambda _, x, y: (x, y)}), "a") == [[(3, [1, 2])]]


def test_broadcast_of_a_reduce_that_produced_nothing_fails() -> None:
    stages = {
        "r": {"type": "reduce", "input": items(), "per": "all", "combine": "m:add"},
        "b": {"type": "broadcast", "input": "r"},
    }
    with pytest.raises(ReferenceFailure, match="produced nothing"):
        interpret(stages)


def test_broadcast_beyond_its_limit_fails() -> None:
    with pytest.raises(ReferenceFailure, match="limit"):
        interpret({"b": {"type": "broadcast", "input": items("x" * 2000), "limit": "1KiB"}})


def test_barrier_gives_its_input_and_a_lower_quorum_has_no_exact_meaning() -> None:
    stages: dict[str, Any] = {
        "a": {"type": "map", "input": items(1), "uses": "m:same"},
        "b": {"type": "barrier", "input": "a"},
    }
    assert values(interpret(stages), "b") == [[1]]
    with pytest.raises(UsageError, match="no exact meaning"):
        interpret({**stages, "b": {**stages["b"], "quorum": "90%"}})


def test_false_condition_skips_the_stage_and_its_readers() -> None:
    reported = {"type": "map", "input": items(1), "uses": "m:reported", "metrics": {"n": "sum"}, "when": "inputs.on"}
    stages = {
        "a": reported,
        "b": {"type": "map", "input": "a", "uses": "m:same"},
        "c": {"type": "broadcast", "input": "b"},
        "d": {"type": "map", "input": items(1), "uses": "m:used", "with": {"x": "${{ stages.c }}"}},
        "e": {"type": "map", "input": items(1), "uses": "m:same", "needs": ["a"]},
        "f": {"type": "map", "input": items(1), "uses": "m:same", "when": "!has(stages.a.metrics.n)"},
        "l": {
            "type": "loop",
            "state": {"x": 0},
            "maxIterations": 1,
            "stages": {"in": {"type": "barrier", "input": "b"}},
        },
    }
    functions = {"reported": lambda x: Result(x, {"n": 5}), "used": lambda x, y: x}
    document: dict[str, Any] = {"inputs": {"on": {"type": "boolean"}}, "outputs": {"n": "${{ stages.a.metrics.n }}"}}
    result = interpret(stages, functions, given={"on": False}, **document)
    assert result.skipped == {"a", "b", "c", "d", "l"}
    assert set(result.datasets) == {"e", "f"}
    assert (result.outputs, result.metrics["a"]) == ({"n": None}, {"n": None})


def test_comparison_with_the_metric_of_a_skipped_stage_fails() -> None:
    stages = {
        "a": {"type": "map", "input": items(1), "uses": "m:same", "metrics": {"n": "sum"}, "when": "false"},
        "b": {"type": "map", "input": items(1), "uses": "m:same", "when": "stages.a.metrics.n > 1"},
    }
    with pytest.raises(ReferenceFailure, match="null has no order"):
        interpret(stages)


# -- loops ---------------------------------------------------------------------------------------------------------


def counting(**loop: Any) -> dict[str, Any]:
    inner = {"step": {"type": "map", "input": "state.x", "uses": "m:next", "with": {"i": "${{ state.i }}"}}}
    base = {"type": "loop", "state": {"x": "start", "i": 1}, "maxIterations": 3, "stages": inner}
    return {
        "start": {"type": "map", "input": items(10), "uses": "m:same"},
        "l": {**base, "next": {"x": "step", "i": "${{ state.i + 1 }}"}, **loop},
    }


def test_loop_runs_the_body_then_next_then_until_with_the_new_state() -> None:
    result = interpret(counting(until="state.i == 3"), {"next": lambda x, i: x + i})
    assert result.metrics["l"] == {"iterations": 2}
    assert (values(result, "l[1].step"), values(result, "l[2].step")) == ([[11]], [[13]])


def test_loop_without_until_runs_all_iterations_and_leaves_its_last_state() -> None:
    stages = {**counting(), "after": {"type": "map", "input": "l.state.x", "uses": "m:same"}}
    result = interpret(stages, {"next": lambda x, i: x + i}, outputs={"i": "${{ stages.l.state.i }}"})
    assert (values(result, "after"), result.outputs) == ([[16]], {"i": 4})


def test_state_not_in_next_keeps_its_value_and_all_of_next_is_read_before_any_is_set() -> None:
    inner = {"m": {"type": "map", "input": items(0), "uses": "m:same"}}
    swap = {"a": "${{ state.b }}", "b": "${{ state.a }}"}
    loop = {"type": "loop", "state": {"a": 1, "b": 2, "c": 3}, "maxIterations": 3, "stages": inner, "next": swap}
    outputs = {name: f"${{{{ stages.l.state.{name} }}}}" for name in "abc"}
    assert interpret({"l": loop}, outputs=outputs).outputs == {"a": 2, "b": 1, "c": 3}


def test_exhausted_loop_fails_unless_told_otherwise() -> None:
    functions = {"next": lambda x, i: x}
    with pytest.raises(ReferenceFailure, match="maxIterations"):
        interpret(counting(until="false"), functions)
    result = interpret(counting(until="false", onExhausted="succeed"), functions)
    assert result.metrics["l"] == {"iterations": 3}


def test_nested_loop_starts_afresh_each_time_and_seeds_follow_the_iteration_path() -> None:
    def draw(x: int, context: Any) -> int:
        return x + int(context.rng.integers(1000))

    inner = {
        "type": "loop",
        "state": {"y": "state.x", "n": 0},
        "maxIterations": 2,
        "stages": {"d": {"type": "map", "input": "state.y", "uses": "m:draw"}},
        "next": {"y": "d", "n": "${{ state.n + 1 }}"},
    }
    outer = {
        "type": "loop",
        "state": {"x": "start"},
        "maxIterations": 2,
        "stages": {"in": inner},
        "next": {"x": "in.state.y"},
    }
    stages = {"start": {"type": "map", "input": items(0), "uses": "m:same"}, "out": outer}
    result = interpret(stages, {"draw": draw}, seed=9)
    path = [f"out[{i}].in[{j}].d" for i in (1, 2) for j in (1, 2)]
    drawn = [int(rng(9, stage, 0).integers(1000)) for stage in path]
    assert [values(result, stage)[0][0] for stage in path] == list(np.cumsum(drawn))
    assert result.metrics["out[2].in"] == {"iterations": 2}


def test_loop_state_is_one_record_when_all_that_feeds_it_is() -> None:
    inner = {
        "b": {"type": "broadcast", "input": "state.x"},
        "r": {"type": "reduce", "input": items(1), "per": "all", "uses": "m:plus", "with": {"b": "${{ stages.b }}"}},
    }
    loop = {"type": "loop", "state": {"x": "s"}, "maxIterations": 2, "stages": inner, "next": {"x": "r"}}
    stages = {"s": {"type": "reduce", "input": items(5), "per": "all", "uses": "m:total"}, "l": loop}
    assert values(interpret(stages, {"plus": lambda values, b: sum(values) + b}), "l[2].r") == [[7]]


def test_next_may_not_take_data_of_a_stage_skipped_in_that_iteration() -> None:
    step = {"type": "map", "input": "state.x", "uses": "m:next", "with": {"i": 0}, "when": "state.i < 2"}
    with pytest.raises(ReferenceFailure, match="skipped") as caught:
        interpret(counting(stages={"step": step}), {"next": lambda x, i: x})
    assert caught.value.stage == "l"


def test_state_is_that_of_the_innermost_loop_that_has_one_of_the_name() -> None:
    inner = {
        "type": "loop",
        "state": {"a": "${{ state.a * 10 }}"},
        "maxIterations": 1,
        "stages": {
            "m": {
                "type": "map",
                "input": items(0),
                "uses": "m:f",
                "with": {"a": "${{ state.a }}", "b": "${{ state.b }}"},
            }
        },
    }
    outer = {"type": "loop", "state": {"a": 1, "b": 2}, "maxIterations": 1, "stages": {"in": inner}}
    result = interpret({"out": outer}, {"f": lambda _, a, b: (a, b)})
    assert values(result, "out[1].in[1].m") == [[(10, 2)]]


def test_loop_state_is_a_list_when_a_source_has_several_records() -> None:
    inner = {
        "b": {"type": "broadcast", "input": "state.x"},
        "m": {"type": "map", "input": items(1, 2), "uses": "m:keep", "with": {"b": "${{ stages.b }}"}},
    }
    loop = {"type": "loop", "state": {"x": "s"}, "maxIterations": 2, "stages": inner, "next": {"x": "m"}}
    stages = {"s": {"type": "reduce", "input": items(5), "per": "all", "uses": "m:total"}, "l": loop}
    result = interpret(stages, {"keep": lambda x, b: (x, b)})
    assert values(result, "l[1].m") == [[(1, [5]), (2, [5])]]


# -- failures, metrics, randomness, outputs ------------------------------------------------------------------------


def failing_at(attempts: set[int], seen: list[int]) -> Callable[..., int]:
    def function(x: int, context: Any) -> int:
        seen.append(context.attempt)
        if context.attempt in attempts:
            raise ValueError("no")
        return x

    return function


def test_partition_is_attempted_as_often_as_retry_says_and_then_fails() -> None:
    stage: dict[str, Any] = {"type": "map", "input": items(1), "uses": "m:f"}
    seen: list[int] = []
    assert values(interpret({"a": stage}, {"f": failing_at({1, 2}, seen)}), "a") == [[1]]
    assert seen == [1, 2, 3]
    with pytest.raises(ReferenceFailure) as caught:
        interpret({"a": {**stage, "retry": {"maximumAttempts": 2}}}, {"f": failing_at({1, 2}, [])})
    assert (caught.value.stage, caught.value.partition) == ("a", 0)


@pytest.mark.parametrize("extra", [{"retry": {"nonRetryableErrorTypes": ["ValueError"]}}, {"idempotent": False}])
def test_refused_error_and_unrepeatable_stage_get_one_attempt(extra: dict[str, Any]) -> None:
    seen: list[int] = []
    with pytest.raises(ReferenceFailure):
        interpret({"a": {"type": "map", "input": items(1), "uses": "m:f", **extra}}, {"f": failing_at({1}, seen)})
    assert seen == [1]


def test_retry_of_the_stage_wins_over_defaults_and_defaults_over_the_decorator() -> None:
    def attempts(stage: dict[str, Any], defaults: dict[str, Any]) -> int:
        seen: list[int] = []
        function = task(retry={"maximum_attempts": 4})(failing_at({1, 2, 3, 4}, seen))
        with pytest.raises(ReferenceFailure):
            interpret(
                {"a": {"type": "map", "input": items(1), "uses": "m:f", **stage}}, {"f": function}, defaults=defaults
            )
        return len(seen)

    one, two = {"retry": {"maximumAttempts": 1}}, {"retry": {"maximumAttempts": 2}}
    assert (attempts(one, two), attempts({}, two), attempts({}, {})) == (1, 2, 4)


def odd_fails(x: int) -> Iterator[int]:
    yield x
    if x % 2:
        raise ValueError(f"odd {x}")


def test_failed_record_emits_nothing_and_is_listed_in_input_order() -> None:
    stage = {"type": "map", "input": {"range": 4, "partitions": 2}, "uses": "m:f", "toleratedFailures": "50%"}
    result = interpret({"a": stage}, {"f": odd_fails})
    assert values(result, "a") == [[0], [2]]
    listed = [(item["partition"], item["position"], item["error"], item["record"]) for item in result.failed_items["a"]]
    assert listed == [(0, 1, "ValueError", 1), (1, 1, "ValueError", 3)]


def test_as_many_failures_as_the_count_says_are_tolerated() -> None:
    stage = {"type": "map", "input": {"range": 4, "partitions": 2}, "uses": "m:f", "toleratedFailures": 2}
    assert values(interpret({"a": stage}, {"f": odd_fails}), "a") == [[0], [2]]


@pytest.mark.parametrize("tolerated", [1, "49.9%", 0])
def test_more_failures_than_tolerated_fail_the_stage(tolerated: Any) -> None:
    stage = {"type": "map", "input": {"range": 4, "partitions": 2}, "uses": "m:f", "toleratedFailures": tolerated}
    with pytest.raises(ReferenceFailure, match="2 of 4"):
        interpret({"a": stage}, {"f": odd_fails})


def test_metrics_fold_over_calls_and_partitions() -> None:
    kinds = {"s": "sum", "l": "min", "h": "max"}
    stages = {
        "a": {"type": "map", "input": {"range": 4, "partitions": 2}, "uses": "m:f", "metrics": kinds},
        "n": {"type": "map", "input": items(), "uses": "m:f", "metrics": kinds},
        "r": {"type": "reduce", "input": "a", "per": "all", "uses": "m:g", "metrics": {"t": "string"}},
    }
    functions = {
        "f": lambda x: Result(x, {"s": x, "l": x, "h": x}),
        "g": lambda values: Result(sum(values), {"t": "done"}),
    }
    result = interpret(stages, functions)
    assert result.metrics["a"] == {"s": 6, "l": 0, "h": 3}
    assert result.metrics["n"] == {"s": None, "l": None, "h": None}
    assert (result.metrics["r"], values(result, "r")) == ({"t": "done"}, [[6]])


@pytest.mark.parametrize("metrics", [{}, {"n": 1, "m": 2}, {"n": float("nan")}, {"n": "x"}, {"n": True}])
def test_metrics_other_than_declared_are_refused(metrics: dict[str, Any]) -> None:
    stage = {"type": "map", "input": items(1), "uses": "m:f", "metrics": {"n": "sum"}}
    with pytest.raises(ReferenceFailure, match="metric"):
        interpret({"a": stage}, {"f": lambda x: Result(x, metrics)})


def test_secret_and_templates_reach_the_function() -> None:
    given = {"key": "${{ secrets.key }}", "text": "n=${{ inputs.n }}", "deep": {"n": "${{ inputs.n + 1 }}"}}
    stage = {"type": "map", "input": items(0), "uses": "m:f", "with": given}
    result = interpret(
        {"a": stage},
        {"f": lambda _, **arguments: arguments},
        inputs={"n": {"type": "integer", "default": 2}},
        secrets=["key"],
        known_secrets={"key": "s3cret"},
    )
    assert values(result, "a") == [[{"key": "s3cret", "text": "n=2", "deep": {"n": 3}}]]


def test_output_has_one_part_for_each_partition_also_for_empty_ones() -> None:
    output = {"uri": "out/${{ run.id }}", "format": "text"}
    stage = {"type": "map", "input": items("a", "b", partitions=3), "uses": "m:same", "output": output}
    result = interpret({"a": stage}, base=Path("/base"), outputs={"uri": "${{ stages.a.output.uri }}"})
    assert result.written_parts == {"a": [b"a\n", b"b\n", b""]}
    assert result.outputs == {"uri": "/base/out/reference"}


def test_record_that_does_not_fit_the_format_fails_its_partition() -> None:
    stage = {
        "type": "map",
        "input": items("a", 1, partitions=2),
        "uses": "m:same",
        "output": {"uri": "o", "format": "text"},
    }
    with pytest.raises(ReferenceFailure) as caught:
        interpret({"a": stage})
    assert (caught.value.stage, caught.value.partition) == ("a", 1)


def test_stages_are_accepted_in_any_order() -> None:
    stages = {
        "last": {"type": "map", "input": "first", "uses": "m:same", "when": "stages.mid.metrics.n == 1"},
        "mid": {"type": "reduce", "input": "first", "per": "all", "uses": "m:count", "metrics": {"n": "integer"}},
        "first": {"type": "map", "input": items(7), "uses": "m:same"},
    }
    result = interpret(stages, {"count": lambda values: Result(None, {"n": len(list(values))})})
    assert values(result, "last") == [[7]]


NONE = "${{ inputs.none }}"
SAME: dict[str, Any] = {"type": "map", "input": items(1, 2), "uses": "m:same"}


@pytest.mark.parametrize(
    "stage",
    [
        {**SAME, "input": {"range": "${{ inputs.none - 1 }}"}},
        {**SAME, "input": {"range": 3, "partitions": NONE}},
        {**SAME, "batch": {"maxItems": NONE}},
        {"type": "shuffle", "input": items([1, 2]), "by": "key", "partitions": NONE},
        {"type": "reduce", "input": items(1, 2, partitions=2), "per": "all", "combine": "m:add", "fanIn": NONE},
        {
            "type": "reduce",
            "input": items(1, 2, partitions=2),
            "per": "all",
            "combine": "m:add",
            "fanIn": "${{ inputs.none + 1 }}",
        },
        {"type": "loop", "state": {"n": 1}, "maxIterations": NONE, "stages": {"in": SAME}},
    ],
)
def test_computed_number_has_the_bounds_of_a_written_one_unless_its_stage_is_skipped(
    stage: dict[str, Any],
) -> None:
    known: dict[str, Any] = {"inputs": {"none": {"type": "integer"}}, "given": {"none": 0}}
    with pytest.raises(ReferenceFailure, match=r"at least [012] is needed here"):
        interpret({"a": stage}, **known)
    assert interpret({"a": {**stage, "when": "inputs.none > 0"}}, **known).skipped == {"a"}
