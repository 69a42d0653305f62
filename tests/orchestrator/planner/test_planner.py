"""The bounds of segments with their reasons, the number of partitions, and the settings in force."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from treadle.dsl.model import MapStage, Spec
from treadle.executors.interface import Capabilities
from treadle.executors.program import Cut, Keep, MapRecords, Reduce, Sample, Scatter, Sort, ToBroadcast
from treadle.orchestrator.plan.plan import (
    BarrierNode,
    GroupFeed,
    LoopData,
    LoopNode,
    NarrowFeed,
    NodeData,
    Plan,
    Policy,
    RangeFeed,
    Segment,
    Shipped,
    StateData,
)
from treadle.orchestrator.planner import RunLocation, make_plan
from treadle.orchestrator.planner.explain import mermaid
from treadle.orchestrator.planner.pipeline import KEYS
from treadle.primitives.errors import UsageError

LOCAL = Capabilities("local", 4, shares_host=True, gangs=True)
SITE = RunLocation({"local": LOCAL, "isolated": Capabilities("isolated", 2, shares_host=False)}, 2**30, "file:///store")
PAIRS = {"type": "map", "input": {"range": 8, "partitions": 4}, "uses": "m:pairs"}
GROUPS = {"type": "shuffle", "input": "pairs", "by": "key"}
COUNTS = {"type": "reduce", "input": "groups", "per": "key", "combine": "m:add"}


def plan(
    stages: Mapping[str, Any], functions: Mapping[str, Any] | None = None, site: RunLocation = SITE, **document: Any
) -> Plan:
    given = document.pop("given", {})
    base = document.pop("base", Path("/nowhere"))
    spec = Spec.model_validate({"apiVersion": "treadle/v1", "name": "w", "stages": stages, **document})
    run = {"id": "r", "startTime": "2026-01-01T00:00:00Z"}
    return make_plan(spec, given, run, functions or {}, base, site)


def segments(found: Plan) -> dict[str, Segment]:
    return {node.id: node for node in found.graph.nodes if isinstance(node, Segment)}


def stages_of(found: Plan) -> dict[str, tuple[str, ...]]:
    return {name: segment.stages for name, segment in segments(found).items()}


def mapped(given: Any, **more: Any) -> dict[str, Any]:
    return {"type": "map", "input": given, "uses": "m:f", **more}


SOURCE = {"range": 8, "partitions": 4}

# -- fusion --------------------------------------------------------------------------------------------------------


def test_map_reduce_is_two_segments() -> None:
    found = plan({"pairs": PAIRS, "groups": GROUPS, "counts": COUNTS})
    assert stages_of(found) == {"groups": ("pairs", "groups"), "counts": ("counts",)}
    first, last = segments(found).values()
    assert isinstance(first.tail, Scatter)
    assert first.tail.partitions == 4
    assert last.feed == NarrowFeed(NodeData(("groups",), "scattered"))


def test_adjacent_maps_are_one_segment() -> None:
    found = plan({"a": mapped(SOURCE), "b": mapped("a"), "c": mapped("b")})
    assert stages_of(found) == {"c": ("a", "b", "c")}
    assert [op.stage for op in segments(found)["c"].ops] == ["a", "b", "c"]
    assert "b runs in the same tasks as a" in segments(found)["c"].reasons


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ({"retry": {"maximumAttempts": 5}}, "retry differs"),
        ({"timeout": "3s"}, "timeout differs"),
        ({"deadline": "3s"}, "deadline differs"),
        ({"maxConcurrency": 1}, "maxConcurrency differs"),
        ({"memory": "1GiB"}, "memory differs"),
        ({"executor": "isolated"}, "executor differs"),
        ({"idempotent": False}, "idempotent differs"),
        ({"toleratedFailures": 3}, "toleratedFailures differ"),
        ({"when": "1 < 2"}, "b has a condition"),
    ],
)
def test_plan_explains_unfused_maps(setting: dict[str, Any], reason: str) -> None:
    found = plan({"a": mapped(SOURCE), "b": mapped("a", **setting)})
    assert stages_of(found) == {"a": ("a",), "b": ("b",)}
    assert f"b is apart from a: {reason}" in segments(found)["b"].reasons


def test_reasons_name_settings_as_authors_write_them() -> None:
    keys = {field.alias or name for name, field in MapStage.model_fields.items()}
    assert {KEYS.get(field, field) for field in Policy.__struct_fields__} <= keys


def test_data_with_two_readers_is_kept() -> None:
    found = plan({"a": mapped(SOURCE), "b": mapped("a"), "c": mapped("a")})
    assert stages_of(found) == {"a": ("a",), "b": ("b",), "c": ("c",)}
    assert "b is apart from a: a has several readers" in segments(found)["b"].reasons


def test_data_written_out_is_kept(tmp_path: Path) -> None:
    output = {"uri": "out", "format": "jsonl"}
    found = plan({"a": mapped(SOURCE, output=output), "b": mapped("a")}, base=tmp_path)
    assert stages_of(found) == {"a": ("a",), "b": ("b",)}
    assert "b is apart from a: a is written out" in segments(found)["b"].reasons


def test_where_data_goes_that_nothing_reads(tmp_path: Path) -> None:
    output = {"uri": "out", "format": "jsonl"}
    found = segments(plan({"a": mapped(SOURCE, output=output), "b": mapped(SOURCE)}, base=tmp_path))
    assert found["a"].reasons[-1] == "no blocks: nothing in the workflow reads its data, which its output has"
    assert found["b"].reasons[-1].startswith("blocks go to store: nothing in the workflow reads them, people may")


def test_data_that_only_a_loop_reads_is_kept_beside_its_output(tmp_path: Path) -> None:
    loop = {"type": "loop", "state": {"n": 0}, "maxIterations": 2, "stages": {"in": mapped("a")}}
    found = plan({"a": mapped(SOURCE, output={"uri": "out", "format": "jsonl"}), "l": loop}, base=tmp_path)
    assert segments(found)["a"].tail == Keep()


def test_barrier_forbids_fusion() -> None:
    found = plan({"a": mapped(SOURCE), "wait": {"type": "barrier", "input": "a"}, "b": mapped("wait")})
    assert stages_of(found) == {"a": ("a",), "b": ("b",)}
    assert segments(found)["b"].feed == NarrowFeed(NodeData(("a",)))
    assert segments(found)["b"].data == ("a", "wait")


def test_leaves_of_a_fold_run_in_the_producers_tasks() -> None:
    found = plan({"a": mapped(SOURCE), "total": {"type": "reduce", "input": "a", "per": "all", "combine": "m:add"}})
    assert stages_of(found) == {"total.leaves": ("a", "total"), "total": ("total",)}


@pytest.mark.parametrize(
    "stage",
    [
        mapped({"items": [1], "partitions": 10**9}),
        mapped({"range": 10**9, "partitions": 10**9}),
        mapped({"range": 10**9}, batch={"maxItems": 1}),
        {"type": "shuffle", "input": SOURCE, "by": "m:f", "partitions": 10**9},
    ],
)
def test_more_partitions_than_a_driver_holds_are_refused(stage: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="1,000,000,000 partitions of one stage are too many"):
        plan({"a": stage})


def test_every_node_of_a_flowchart_has_an_id_of_its_own() -> None:
    total = {"type": "reduce", "input": "a", "per": "all", "combine": "m:add"}
    made = plan({"a": mapped(SOURCE), "total": total, "total_leaves": mapped(SOURCE), "end": mapped("total_leaves")})
    chart = mermaid(made)
    ids = re.findall(r'^  (\w+)\["', chart, re.MULTILINE)
    assert len({*ids}) == len(ids) == len(made.graph.nodes)
    assert "end" not in ids, "a word of the language of charts"
    assert re.findall(r"^  (\w+) --> (\w+)$", chart, re.MULTILINE) == [(ids[0], ids[1])]


# -- no cycles -----------------------------------------------------------------------------------------------------


def test_stages_that_each_read_the_two_before_are_planned() -> None:
    one = {"type": "reduce", "per": "all", "combine": "m:add"}
    stages: dict[str, Any] = {"s0": one | {"input": SOURCE}, "s1": one | {"input": "s0"}}
    for number in range(2, 60):
        stages[f"s{number}"] = mapped(f"s{number - 1}", needs=[f"s{number - 2}"])
    stages["told"] = {"type": "broadcast", "input": "s1"}
    stages["last"] = mapped("s59") | {"with": {"told": "${{ stages.told }}"}}
    found = {node.id: node for node in plan(stages).graph.nodes}
    assert isinstance(found["told"], BarrierNode), "what has no condition runs, so the limit is looked at"


def test_needs_on_a_stage_after_the_producer_keeps_them_apart() -> None:
    """a -> b -> c, and d reads a and needs c. With a and d in one segment, c would wait for itself."""
    stages = {
        "a": mapped(SOURCE),
        "total": {"type": "reduce", "input": "side", "per": "all", "uses": "m:total", "needs": ["a"]},
        "side": mapped(SOURCE),
        "b": mapped("a", needs=["total"]),
    }
    found = plan(stages)
    assert "b is apart from a: b also needs what comes after a" in segments(found)["b"].reasons
    assert segments(found)["total"].after == ("a",)
    assert segments(found)["b"].after == ("total",)


def test_node_is_listed_after_its_dependencies() -> None:
    """Although it is planned later: `first` was left open for `last` to join."""
    stages = {"first": mapped(SOURCE), "aside": mapped(SOURCE, needs=["first"])}
    found = plan({**stages, "last": mapped("first", needs=["aside"])})
    assert [node.id for node in found.graph.nodes] == ["first", "aside", "last"]


def test_broadcast_made_of_the_producer_keeps_them_apart() -> None:
    stages = {
        "a": mapped(SOURCE),
        "all": {"type": "broadcast", "input": "a"},
        "b": mapped("a", **{"with": {"value": "${{ stages.all }}"}}),
    }
    found = plan(stages)
    assert stages_of(found) == {"a": ("a",), "all": ("all",), "b": ("b",)}
    assert segments(found)["b"].data == ("a", "all")
    assert segments(found)["b"].broadcasts == {"stages.all": Shipped(NodeData(("all",)), "all")}
    assert any(isinstance(op, ToBroadcast) for op in segments(found)["all"].ops)


TOTAL = {"type": "reduce", "input": SOURCE, "per": "all", "uses": "m:f"}
SHIP = {"type": "broadcast", "input": "total", "limit": "64KiB"}
VALUE = {"with": {"value": "${{ stages.ship }}"}}


def test_broadcast_of_one_record_is_shipped_as_it_is() -> None:
    found = plan({"total": TOTAL, "ship": SHIP, "b": mapped(SOURCE, **VALUE)})
    assert "ship" not in segments(found)
    assert any(isinstance(node, BarrierNode) and node.id == "ship" for node in found.graph.nodes)
    assert segments(found)["b"].data == ("ship", "total")
    assert segments(found)["b"].broadcasts == {"stages.ship": Shipped(NodeData(("total",)), "ship", 2**16)}


@pytest.mark.parametrize(
    ("partitions", "nodes"), [(1, ["all", "sum", "b"]), (2, ["all.in", "all", "sum.in", "sum", "b"])]
)
def test_what_wants_all_of_a_source_reads_a_single_partition_itself(partitions: int, nodes: list[str]) -> None:
    source = {"range": 8, "partitions": partitions}
    stages = {
        "all": {"type": "broadcast", "input": source},
        "sum": {"type": "reduce", "input": source, "per": "all", "uses": "m:sum"},
        "b": mapped(SOURCE, **{"with": {"all": "${{ stages.all }}"}}),
    }
    assert sorted(segments(plan(stages))) == sorted(nodes)


def test_broadcast_that_nothing_reads_is_kept_for_people() -> None:
    assert segments(plan({"total": TOTAL, "ship": SHIP}))["ship"].put == "store"


@pytest.mark.parametrize("given", [SOURCE, "c"])
def test_broadcast_whose_readers_may_be_skipped_has_a_task_that_looks_at_it(given: Any) -> None:
    maybe = {"when": "inputs.x > 1"}
    reader = mapped(given, **VALUE, **(maybe if given is SOURCE else {}))
    stages = {"total": TOTAL, "ship": SHIP, "c": mapped(SOURCE, **maybe), "b": reader}
    found = plan(stages, inputs={"x": {"type": "integer"}}, given={"x": 1})
    assert any(isinstance(op, ToBroadcast) for op in segments(found)["ship"].ops)


def shipping_loop(**inner: Any) -> dict[str, Any]:
    """A loop in which `ship` broadcasts the state `x`."""
    body = {"ship": {**SHIP, "input": "state.x"}, "a": mapped(SOURCE, **VALUE), "x2": {**TOTAL, "input": "a"}, **inner}
    turns = {"type": "loop", "state": {"x": "total"}, "maxIterations": 3, "stages": body, "next": {"x": "x2"}}
    return {"total": TOTAL, "turns": turns}


def body_of(found: Plan) -> dict[str, Any]:
    return {node.id: node for loop in found.graph.nodes if isinstance(loop, LoopNode) for node in loop.body.nodes}


def test_state_of_one_record_is_shipped_as_it_is() -> None:
    found = body_of(plan(shipping_loop()))
    assert isinstance(found["ship"], BarrierNode)
    assert found["a"].broadcasts == {"stages.ship": Shipped(StateData("x"), "ship", 2**16)}


def test_state_that_a_loop_further_in_hides_is_shipped_by_a_task() -> None:
    deep = {"b": mapped(SOURCE, **VALUE), "y": {**TOTAL, "input": "b"}}
    inner = {"type": "loop", "state": {"x": "x2"}, "maxIterations": 2, "stages": deep, "next": {"x": "y"}}
    assert isinstance(body_of(plan(shipping_loop(inner=inner)))["ship"], Segment)


def test_metric_of_the_producer_keeps_them_apart() -> None:
    stages = {
        "a": mapped(SOURCE, metrics={"seen": "sum"}),
        "b": mapped("a", **{"with": {"seen": "${{ stages.a.metrics.seen }}"}}),
    }
    found = plan(stages)
    assert set(segments(found)) == {"a", "b"}
    assert segments(found)["b"].paths == ("stages.a.metrics.seen",)
    assert "b is apart from a: b waits for all of a" in segments(found)["b"].reasons


def test_needs_on_the_producer_itself_keeps_them_apart() -> None:
    found = plan({"a": mapped(SOURCE), "b": mapped("a", needs=["a"])})
    assert set(segments(found)) == {"a", "b"}


def test_every_node_is_listed_after_its_dependencies() -> None:
    stages = {"late": mapped("early"), "counts": COUNTS, "groups": GROUPS, "early": mapped(SOURCE), "pairs": PAIRS}
    order = [node.id for node in plan(stages).graph.nodes]
    for node in plan(stages).graph.nodes:
        assert all(order.index(other) < order.index(node.id) for other in (*node.data, *node.after))


# -- batch ---------------------------------------------------------------------------------------------------------


def test_batch_of_a_range_is_cut_when_planned() -> None:
    found = segments(plan({"a": mapped(SOURCE, batch={"maxItems": 1})}))
    assert found["a"].feed == RangeFeed(8, 4, 1)
    assert found["a"].partitions == 8


def test_batch_of_items_keeps_within_their_partitions() -> None:
    found = segments(plan({"a": mapped({"items": [1, 2, 3, 4, 5], "partitions": 2}, batch={"maxItems": 2})}))
    assert found["a"].feed.bounds == ((0, 2), (2, 3), (3, 5))  # type: ignore[union-attr]


@pytest.mark.parametrize("batch", [{"maxBytes": "20B"}, {"maxItems": 2, "maxBytes": "20B"}])
def test_batch_by_bytes_is_cut_when_its_input_is_there(batch: dict[str, Any]) -> None:
    found = segments(plan({"a": mapped(SOURCE, batch=batch)}))
    assert list(found) == ["a.cut", "a"]
    assert found["a.cut"].tail == Cut(batch.get("maxItems", 0), 20)
    assert found["a"].feed == NarrowFeed(NodeData(("a.cut",), "cut"))
    assert found["a"].partitions == 0


def test_batch_after_a_map_is_cut_in_the_maps_tasks() -> None:
    found = plan({"a": mapped(SOURCE), "b": mapped("a", batch={"maxItems": 1})})
    assert stages_of(found) == {"b.cut": ("a",), "b": ("b",)}


# -- shuffles ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("partitions", "wanted"), [(1, 1), (4, 4), (300, 256)])
def test_shuffle_has_as_many_partitions_as_its_input_up_to_256(partitions: int, wanted: int) -> None:
    pairs = mapped({"range": 300, "partitions": partitions})
    found = segments(plan({"pairs": pairs, "groups": GROUPS, "counts": COUNTS}))
    (scatter,) = (segment.tail for segment in found.values() if isinstance(segment.tail, Scatter))
    assert scatter.partitions == wanted
    assert found["counts"].partitions == wanted


def test_shuffle_of_two_inputs_has_the_sum_of_their_partitions() -> None:
    stages = {
        "a": PAIRS,
        "b": {**PAIRS, "input": {"range": 9, "partitions": 3}},
        "both": {"type": "shuffle", "input": ["a", "b"], "by": "key"},
        "joined": {"type": "reduce", "input": "both", "per": "key", "uses": "m:join"},
    }
    found = segments(plan(stages))
    assert [found[name].tail.partitions for name in ("both.0", "both.1")] == [7, 7]  # type: ignore[union-attr]
    assert found["joined"].feed == NarrowFeed(NodeData(("both.0", "both.1"), "scattered"))
    (reduce,) = found["joined"].ops
    assert isinstance(reduce, Reduce)
    assert reduce.names == ("a", "b")


def test_shuffle_of_several_inputs_of_unknown_width_must_say_its_own() -> None:
    stages = {
        "a": PAIRS,
        "b": mapped(SOURCE, batch={"maxBytes": "20B"}),
        "both": {"type": "shuffle", "input": ["a", "b"], "by": "key"},
        "joined": {"type": "reduce", "input": "both", "per": "key", "uses": "m:join"},
    }
    with pytest.raises(UsageError, match="Write `partitions:`"):
        plan(stages)


def test_reader_of_a_shuffle_sorts_it() -> None:
    stages = {"pairs": PAIRS, "groups": {**GROUPS, "sort": True}, "wait": {"type": "barrier", "input": "groups"}}
    found = segments(plan({**stages, "counts": {**COUNTS, "input": "wait"}}))
    assert [type(op) for op in found["counts"].ops] == [Sort, Reduce]


def test_range_without_boundaries_is_sampled_first() -> None:
    groups = {**GROUPS, "partitioner": {"type": "range"}}
    found = segments(plan({"pairs": PAIRS, "groups": groups, "counts": COUNTS}))
    assert list(found) == ["pairs", "groups.sample", "groups.cuts", "groups", "counts"]
    assert isinstance(found["groups.sample"].ops[-1], Sample)
    assert found["groups"].broadcasts == {"cuts.groups": Shipped(NodeData(("groups.cuts",)), "groups")}


def test_shuffle_that_is_written_out_is_gathered_once(tmp_path: Path) -> None:
    groups = {**GROUPS, "output": {"uri": "out", "format": "jsonl"}}
    found = plan({"pairs": PAIRS, "groups": groups, "counts": COUNTS}, base=tmp_path)
    assert set(segments(found)) == {"groups", "groups.out", "counts"}
    assert segments(found)["groups.out"].output is not None


# -- trees ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("partitions", "fan_in", "levels"),
    [
        (1, 2, []),
        (4, 2, []),
        (5, 2, [3]),
        (8, 2, [4]),
        (9, 2, [5, 3]),
        (64, 2, [32, 16, 8, 4]),
        (256, None, []),
        (257, None, [17]),
    ],
)
def test_levels_of_a_tree(partitions: int, fan_in: int | None, levels: list[int]) -> None:
    total: dict[str, Any] = {"type": "reduce", "input": "a", "per": "all", "combine": "m:add"}
    if fan_in is not None:
        total["fanIn"] = fan_in
    found = segments(plan({"a": mapped({"range": 1000, "partitions": partitions}), "total": total}))
    inner = [segment for name, segment in found.items() if name.startswith("total.level")]
    assert [segment.partitions for segment in inner] == levels
    assert all(isinstance(segment.feed, GroupFeed) for segment in inner)
    root = found["total"].ops[-1]
    assert isinstance(root, Reduce)
    assert root.fan_in == (fan_in or 16)


# -- loops, conditions, order --------------------------------------------------------------------------------------

LOOP = {
    "type": "loop",
    "state": {"data": "start", "count": 0},
    "maxIterations": 3,
    "until": "state.count > inputs.n",
    "stages": {"step": mapped("state.data", **{"with": {"n": "${{ state.count }}"}}), "far": mapped("step")},
    "next": {"data": "far", "count": "${{ state.count + 1 }}"},
}


def test_loop_is_one_node_with_a_graph_of_its_own() -> None:
    inputs = {"n": {"type": "integer", "default": 1}}
    found = plan({"start": mapped(SOURCE), "turn": LOOP, "end": mapped("turn.state.data")}, inputs=inputs)
    (loop,) = [node for node in found.graph.nodes if isinstance(node, LoopNode)]
    assert loop.state == {"data": NodeData(("start",)), "count": None}
    assert loop.scalars == {"count": 0}
    assert loop.next == {"data": NodeData(("far",)), "count": None}
    assert loop.data == ("start",)
    (body,) = loop.body.nodes
    assert isinstance(body, Segment)
    assert body.stages == ("step", "far")
    assert body.feed == NarrowFeed(StateData("data"))
    assert segments(found)["end"].feed == NarrowFeed(LoopData("turn", "data"))
    assert segments(found)["end"].data == ("turn",)


def test_data_that_a_loop_reads_is_kept() -> None:
    stages = {"start": mapped(SOURCE), "other": mapped(SOURCE), "turn": {**LOOP, "until": "state.count > 1"}}
    stages["turn"]["stages"] = {"step": mapped("other"), "far": mapped("step", needs=["step"])}
    found = plan(stages)
    (loop,) = [node for node in found.graph.nodes if isinstance(node, LoopNode)]
    assert loop.data == ("other", "start")
    assert {"other", "start"} <= set(segments(found))


def test_quorum_belongs_to_the_segment_before_the_barrier() -> None:
    found = plan({"a": mapped(SOURCE), "most": {"type": "barrier", "input": "a", "quorum": "75%"}, "b": mapped("most")})
    assert segments(found)["a"].quorum == 75
    assert segments(found)["b"].quorum == 100
    assert any(isinstance(node, BarrierNode) and node.id == "most" for node in found.graph.nodes)
    assert found.inexact == ("most: quorum 75%",)


def test_condition_goes_with_the_whole_segment() -> None:
    found = segments(plan({"a": mapped(SOURCE, when="run.id == 'x'"), "b": mapped("a")}))
    assert found["b"].when == "run.id == 'x'"
    assert found["b"].stages == ("a", "b")


# -- settings ------------------------------------------------------------------------------------------------------


def policy(stage: Mapping[str, Any], functions: Mapping[str, Any] | None = None, **document: Any) -> Any:
    return segments(plan({"a": mapped(SOURCE, **stage)}, functions, **document))["a"].policy


DECORATED = {"m:f": {"settings": {"timeout": "9s", "retry": {"maximumAttempts": 9}, "max_concurrency": 9}}}


def test_stage_wins_over_defaults_and_those_over_the_decorator() -> None:
    assert policy({}).maximum_attempts == 3
    assert policy({}, DECORATED).maximum_attempts == 9
    assert policy({}, DECORATED).timeout == 9
    defaults = {"retry": {"maximumAttempts": 5}}
    assert policy({}, DECORATED, defaults=defaults).maximum_attempts == 5
    assert policy({}, DECORATED, defaults=defaults).max_concurrency == 9
    assert policy({"retry": {"maximumAttempts": 2}}, DECORATED, defaults=defaults).maximum_attempts == 2


def test_retry_is_taken_whole_from_where_it_is_set() -> None:
    defaults = {"retry": {"maximumAttempts": 5, "initialInterval": "7s"}}
    found = policy({"retry": {"maximumAttempts": 2}}, defaults=defaults)
    assert (found.maximum_attempts, found.initial_interval) == (2, 0.2)


def test_non_idempotent_stage_has_one_attempt_for_all_defaults() -> None:
    found = policy({"idempotent": False}, defaults={"retry": {"maximumAttempts": 5}})
    assert (found.maximum_attempts, found.idempotent) == (1, False)


def test_memory_without_a_maximum_does_not_grow() -> None:
    assert (policy({"memory": "1MiB"}).memory_start, policy({"memory": "1MiB"}).memory_max) == (2**20, 2**20)
    grown = policy({"memory": {"start": "1MiB", "max": "4MiB"}})
    assert (grown.memory_start, grown.memory_max) == (2**20, 2**22)


def test_blocks_go_to_the_store_when_workers_do_not_share_a_host() -> None:
    stages = {"a": mapped(SOURCE), "b": mapped("a"), "c": mapped("a")}
    apart = RunLocation({"local": LOCAL}, 0, "s3://bucket", one_host=False)
    assert segments(plan(stages))["a"].put == "host"
    assert segments(plan(stages, site=apart))["a"].put == "store"
    assert segments(plan(stages, defaults={"exchange": "storage"}))["a"].put == "store"


def test_decorators_are_recorded_in_the_plan() -> None:
    assert plan({"a": mapped(SOURCE)}, DECORATED).settings == {"m:f": DECORATED["m:f"]["settings"]}


def test_flat_comes_from_the_stage_before_the_function() -> None:
    known = {"m:f": {"flat": True}}
    flat = [segments(plan({"a": mapped(SOURCE, **more)}, known))["a"].ops[0] for more in ({}, {"flat": False})]
    assert [op.flat for op in flat if isinstance(op, MapRecords)] == [True, False]


def test_glob_without_files_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        plan({"a": mapped({"uri": "none/*.txt", "format": "text"})}, base=tmp_path)
