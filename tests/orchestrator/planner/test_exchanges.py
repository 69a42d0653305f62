"""The planned operations of shuffles, reduces and broadcasts have every setting of the document in its place."""

from __future__ import annotations

from typing import Any

import pytest
from orchestrator.planner.test_planner import COUNTS, GROUPS, PAIRS, SOURCE, mapped, plan, segments

from treadle.executors.program import Arg, By, Call, Cuts, Op, Reduce, Sample, Scatter, ToBroadcast, Value
from treadle.orchestrator.plan.plan import AllFeed, GroupFeed, NarrowFeed, NodeData, Segment, Shipped

WITH = {"with": {"n": 3}, "metrics": {"rows": "sum"}}
ARGS: dict[str, Arg] = {"n": Value(3)}


def planned(**stages: Any) -> dict[str, Segment]:
    return segments(plan(stages))


def last(segment: Segment) -> Op:
    return segment.ops[-1]


# -- reduce --------------------------------------------------------------------------------------------------------


def test_a_reduce_by_key_knows_the_key_of_its_shuffle_and_all_that_was_written() -> None:
    given = {"type": "reduce", "input": "groups", "per": "key", "combine": "m:add", "finish": "m:end", **WITH}
    found = planned(pairs=PAIRS, groups={**GROUPS, "sort": True}, out={**given, "initial": None})
    assert last(found["out"]) == Reduce(
        "out",
        "key",
        combine="m:add",
        initial=Value(None),
        finish=Call("m:end", ARGS),
        by=By(first=True),
        sorted=True,
        metrics={"rows": "sum"},
    )
    assert found["out"].metrics == {"out": {"rows": "sum"}}


def test_a_function_per_key_gets_the_values_of_several_inputs_by_name() -> None:
    join = {"type": "reduce", "input": "groups", "per": "key", "uses": "m:join", **WITH}
    by = {"by": ["user", "day"], "partitions": 2}
    two = planned(pairs=PAIRS, more=PAIRS, groups={**GROUPS, **by, "input": ["pairs", "more"]}, out=join)
    known = Reduce("out", "key", uses=Call("m:join", ARGS), by=By(columns=("user", "day")), metrics={"rows": "sum"})
    assert last(two["out"]) == Reduce(
        "out",
        "key",
        uses=known.uses,
        by=known.by,
        names=("pairs", "more"),
        metrics=known.metrics,
    )
    one = planned(pairs=PAIRS, groups={**GROUPS, **by, "input": ["pairs"]}, out=join)
    assert last(one["out"]) == known


def test_a_reduce_of_each_partition_is_fused_with_its_producer() -> None:
    given = {"type": "reduce", "input": "pairs", "per": "partition", "combine": "m:add", "initial": 0, **WITH}
    found = planned(pairs=PAIRS, out=given)
    whole = Reduce("out", "partition", combine="m:add", initial=Value(0), metrics={"rows": "sum"})
    assert last(found["out"]) == whole
    assert found["out"].stages == ("pairs", "out")


def test_a_function_over_everything_is_one_task() -> None:
    found = planned(pairs=PAIRS, out={"type": "reduce", "input": "pairs", "per": "all", "uses": "m:all", **WITH})
    assert last(found["out"]) == Reduce("out", "partition", uses=Call("m:all", ARGS), metrics={"rows": "sum"})
    assert (found["out"].partitions, found["out"].estimate) == (1, 2**16)


def test_a_tree_folds_on_every_level_and_begins_and_ends_at_its_root() -> None:
    given = {"type": "reduce", "input": "pairs", "per": "all", "combine": "m:add", "finish": "m:end", "fanIn": 2}
    pairs = mapped({"range": 32, "partitions": 9})
    found = planned(pairs=pairs, out={**given, **WITH, "initial": 7, "when": "run.id != ''"})
    step = Reduce("out", "partition", combine="m:add")
    levels = [name for name in found if name.startswith("out.level")]
    assert levels == ["out.level1", "out.level2"]
    assert last(found["out.leaves"]) == step
    for name, partitions in (("out.level1", 5), ("out.level2", 3)):
        assert (found[name].ops, found[name].partitions, found[name].when) == ((step,), partitions, "run.id != ''")
        feed = found[name].feed
        assert isinstance(feed, GroupFeed)
        assert feed.fan_in == 2
    whole = Reduce(
        "out",
        "partition",
        combine="m:add",
        fan_in=2,
        initial=Value(7),
        finish=Call("m:end", ARGS),
        metrics={"rows": "sum"},
    )
    assert last(found["out"]) == whole


# -- shuffle -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("by", "known"),
    [("key", By(first=True)), ("m:key", By(function="m:key")), (["a", "b"], By(columns=("a", "b")))],
)
def test_a_shuffle_writes_by_its_key(by: Any, known: By) -> None:
    found = planned(pairs=PAIRS, groups={**GROUPS, "by": by, "partitions": 3, "combine": "m:add"})
    assert found["groups"].tail == Scatter("groups", known, 3, None, "m:add", 0)


def test_each_input_of_a_range_shuffle_is_sampled_and_all_share_the_cuts() -> None:
    given = {**GROUPS, "by": "m:key", "partitions": 3, "partitioner": {"type": "range"}, "executor": "isolated"}
    given["when"] = "run.id != ''"
    found = planned(pairs=PAIRS, more=PAIRS, groups={**given, "input": ["pairs", "more"]})
    names = ("groups.sample.0", "groups.sample.1")
    assert [(last(found[name]), found[name].estimate) for name in names] == [
        (Sample("groups", By(function="m:key")), 2**16)
    ] * 2
    for name in names:
        assert (found[name].policy.executor, found[name].when) == ("isolated", "run.id != ''")
        assert "groups has no boundaries: they are drawn from a sample of each partition" in found[name].reasons
    cuts = found["groups.cuts"]
    assert (cuts.feed, cuts.ops, cuts.partitions) == (AllFeed(NodeData(names)), (Cuts("groups", 3),), 1)
    assert (cuts.data, cuts.estimate) == (names, 2**16)
    assert (cuts.policy.executor, cuts.when) == ("isolated", "run.id != ''")
    boundaries = Value("${{ cuts.groups }}")
    for name in ("groups.0", "groups.1"):
        assert found[name].tail == Scatter("groups", By(function="m:key"), 3, boundaries, "", 0)
        assert "groups.cuts" in found[name].data
        assert found[name].broadcasts == {"cuts.groups": Shipped(NodeData(("groups.cuts",)), "groups")}
    assert "groups.sample" in planned(pairs=PAIRS, groups=given)


# -- broadcast -----------------------------------------------------------------------------------------------------


def test_broadcast_states_its_content_and_its_limit() -> None:
    total = {"type": "reduce", "input": "pairs", "per": "all", "combine": "m:add"}
    found = planned(
        pairs=PAIRS,
        total=total,
        every={"type": "broadcast", "input": "pairs", "limit": "1MiB"},
        one={"type": "broadcast", "input": "total", "output": {"uri": "out", "format": "jsonl"}},
        use=mapped(SOURCE, **{"with": {"a": "${{ stages.every }}", "b": "${{ stages.one }}"}}),
    )
    assert last(found["every"]) == ToBroadcast("every", False, 2**20)
    assert last(found["one"]) == ToBroadcast("one", True, 2**28), "which has an output of its own, so a task"


# -- estimates and widths ---------------------------------------------------------------------------------------------


def test_estimated_size_of_a_stage_follows_from_its_input() -> None:
    total = {"type": "reduce", "input": "pairs", "per": "all", "combine": "m:add", "fanIn": 2}
    found = planned(pairs=mapped({"range": 512, "partitions": 9}), out=total)
    levels = ("out.leaves", "out.level1", "out.level2", "out")
    assert [found[name].estimate for name in levels] == [8192, 4096, 2048, 2**16]
    found = planned(pairs=PAIRS, more=PAIRS, groups={**GROUPS, "input": ["pairs", "more"]}, counts=COUNTS)
    assert [found[name].estimate for name in ("groups.0", "groups.1", "counts")] == [128, 128, 64]


def test_boundaries_that_are_given_need_no_sample() -> None:
    given = {**GROUPS, "partitions": 3}
    listed = {**given, "partitioner": {"type": "range", "boundaries": [3, 5]}}
    found = planned(pairs=PAIRS, groups=listed, counts=COUNTS)
    assert set(found) == {"groups", "counts"}
    assert found["groups"].tail == Scatter("groups", By(first=True), 3, Value([3, 5]), "", 0)
    made = {**given, "partitioner": {"type": "range", "boundaries": "cuts"}}
    found = planned(pairs=PAIRS, cuts={"type": "broadcast", "input": SOURCE}, groups=made, counts=COUNTS)
    assert {"groups", "counts", "cuts"} == set(found) - {"pairs", "cuts.in"}
    assert found["groups"].tail == Scatter("groups", By(first=True), 3, Value("${{ stages.cuts }}"), "", 0)
    assert found["groups"].broadcasts == {"stages.cuts": Shipped(NodeData(("cuts",)), "cuts")}


def test_a_shuffle_of_unknown_width_has_the_width_of_its_input() -> None:
    cut = mapped("pairs", batch={"maxBytes": "1KiB"})
    found = planned(pairs=PAIRS, cut=cut, groups={**GROUPS, "input": "cut"}, counts=COUNTS)
    assert found["groups"].tail == Scatter("groups", By(first=True), 0, None, "", 0)
    assert all(all(segment.reasons) for segment in found.values())


def test_inputs_that_a_function_tells_apart_are_read_apart_though_they_were_gathered() -> None:
    both = {**GROUPS, "input": ["pairs", "more"], "output": {"uri": "out", "format": "jsonl"}}
    join = {"type": "reduce", "input": "groups", "per": "key", "uses": "m:join"}
    found = planned(pairs=PAIRS, more=PAIRS, groups=both, out=join)
    assert found["out"].feed == NarrowFeed(NodeData(("groups.0", "groups.1"), "scattered"))
    assert "groups.out" in found
