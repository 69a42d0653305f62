"""Shared objects in plans: the chain of their states, and what may run in one task."""

from __future__ import annotations

from typing import Any

from orchestrator.planner.test_planner import SOURCE, mapped, plan, segments

from treadle.orchestrator.plan.plan import EffectsFeed, LoopNode, NodeData, Plan
from treadle.orchestrator.planner.explain import explain

HITS: dict[str, Any] = {"objects": {"hits": {"type": "counter"}}, "outputs": {"hits": "${{ objects.hits }}"}}
USES = {"objects": ["hits"]}


def planned(stages: dict[str, Any]) -> Plan:
    return plan(stages, **HITS)


def test_states_are_a_chain_of_segments() -> None:
    found = segments(planned({"a": mapped(SOURCE, **USES), "b": mapped("a", **USES, needs=["a"])}))
    assert {name: segment.data for name, segment in found.items()} == {
        "objects.hits.0": (),
        "a": ("objects.hits.0",),
        "objects.hits.a": ("objects.hits.0",),
        "b": ("a", "objects.hits.a"),
        "objects.hits.b": ("objects.hits.a",),
        "objects.hits": ("objects.hits.b",),
    }
    assert found["objects.hits.b"].feed == EffectsFeed(NodeData(("b",)), "b")
    assert found["objects.hits.b"].after == ("b",)


def test_stage_that_uses_no_object_still_runs_in_the_same_task() -> None:
    found = segments(planned({"a": mapped(SOURCE, **USES), "b": mapped("a"), "c": mapped(SOURCE, needs=["a"])}))
    assert found["b"].stages == ("a", "b")
    assert found["objects.hits.a"].feed == EffectsFeed(NodeData(("b",)), "a")
    assert found["c"].after == ("b",), "which waits for no object"


def test_readers_of_one_state_run_in_one_task() -> None:
    reads = {"objects": {"hits": "read"}}
    found = segments(planned({"a": mapped(SOURCE, **reads), "b": mapped("a", **reads)}))
    assert list(found) == ["objects.hits.0", "b", "objects.hits"]


def test_loop_carries_the_objects_that_its_stages_change() -> None:
    inner = {"s": mapped({"range": 2}, **USES)}
    loop = {"type": "loop", "state": {"n": 0}, "maxIterations": 2, "stages": inner}
    found = planned({"l": loop})
    (node,) = [one for one in found.graph.nodes if isinstance(one, LoopNode)]
    assert node.state == {"n": None, "objects.hits": NodeData(("objects.hits.0",))}
    assert node.next == {"objects.hits": NodeData(("objects.hits.s",))}
    assert segments(found)["objects.hits"].data == ("l",)


def test_plan_tells_when_calls_take_effect() -> None:
    views = {view.node: view for view in explain(planned({"a": mapped(SOURCE, **USES)}))}
    view = views["objects.hits.a"]
    assert view.does == ("objects.hits: apply the calls of a",)
    assert view.reasons[0] == "calls of hits take effect when a is over: once for each partition, in their order"
