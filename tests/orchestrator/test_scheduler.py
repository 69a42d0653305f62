"""The scheduler as a table of events and instructions."""

from __future__ import annotations

from typing import Any

import pytest

from treadle.executors.program import Keep
from treadle.orchestrator.plan.plan import BarrierNode, Child, Graph, ItemsFeed, LoopNode, Policy, Segment
from treadle.orchestrator.scheduler.instructions import (
    Complete,
    Escalate,
    Fail,
    Hold,
    Limit,
    NodeDone,
    NodeFailed,
    NodeGrouped,
    NodeLost,
    NodeStopped,
    Pause,
    Problem,
    Release,
    Rest,
    RunNode,
    Stop,
    Summary,
    Unpause,
)
from treadle.orchestrator.scheduler.scheduler import MAXIMUM_REPAIRS, Scheduler
from treadle.orchestrator.scheduler.task_groups import partition_of, segment_of
from treadle.primitives.errors import InternalError


def segment(name: str, data: tuple[str, ...] = (), **known: Any) -> Segment:
    return Segment(name, (name,), ItemsFeed((), ()), (), Keep(), Policy(), data=data, **known)


def diamond() -> Graph:
    return Graph((segment("a"), segment("b", ("a",)), segment("c", ("a",)), segment("d", ("b", "c"))))


def scheduler(*nodes: Any, prefix: str = "", **env: Any) -> Scheduler:
    return Scheduler(Graph(nodes), {"inputs": {}, "run": {}, **env}, prefix=prefix)


def test_a_node_runs_once_all_its_data_is_there() -> None:
    graph = Scheduler(diamond(), {})
    assert graph.start() == [RunNode("a", {})]
    assert graph.handle(NodeDone("a", Summary())) == [RunNode("b", {}), RunNode("c", {})]
    assert graph.handle(NodeDone("c", Summary())) == []
    assert graph.handle(NodeDone("b", Summary())) == [RunNode("d", {})]
    assert graph.handle(NodeDone("d", Summary())) == [Complete()]
    assert [graph.handle(event) for event in (Pause(), Unpause(), Limit("a", 1))] == [[], [], []], "it is over"


def test_nodes_found_done_are_not_run_again() -> None:
    graph = Scheduler(diamond(), {}, {"a": Summary(), "b": Summary(), "of another graph": Summary()})
    assert graph.start() == [RunNode("c", {})]
    assert set(graph.summaries) == {"a", "b"}


def test_false_condition_skips_the_node_and_its_readers_but_not_its_waiters() -> None:
    nodes = (segment("a", when="inputs.wanted"), segment("b", ("a",)), segment("c", after=("a",)))
    graph = scheduler(*nodes, inputs={"wanted": False})
    assert graph.start() == [RunNode("c", {})]
    assert graph.skipped == ("a", "b")


def test_metrics_of_a_skipped_stage_are_null() -> None:
    graph = scheduler(segment("a", when="false", metrics={"a": {"rows": "sum"}}), segment("b", after=("a",)))
    graph.start()
    assert graph.env["stages"]["a"] is None


def test_stage_stays_null_when_one_of_its_nodes_was_skipped() -> None:
    graph = scheduler(segment("a.1"), Segment("a", ("a.1",), ItemsFeed((), ()), (), Keep(), Policy(), when="false"))
    assert graph.start() == [RunNode("a.1", {})]
    assert graph.handle(NodeDone("a.1", Summary(metrics={"a.1": {"n": 1}}))) == [Complete()]
    assert graph.env["stages"]["a.1"] is None


def test_bindings_hold_exactly_the_values_that_the_node_reads() -> None:
    reader = segment("b", ("a",), paths=("state.k", "stages.a.metrics.n", "stages.unknown.metrics.n", "inputs.x"))
    last = segment("c", ("b",), paths=("inputs.a",))
    graph = scheduler(segment("a"), reader, last, state={"k": 3}, inputs={"x": 1})
    graph.start()
    [run] = graph.handle(NodeDone("a", Summary(metrics={"a": {"n": 2}})))
    assert isinstance(run, RunNode)
    assert (set(run.bindings), set(run.bindings["stages"])) == ({"state", "stages"}, {"a"})
    assert run.bindings["state"] == {"k": 3}
    assert graph.handle(NodeDone("b", Summary())) == [RunNode("c", {})]


def test_a_condition_over_null_fails_the_run_at_its_place() -> None:
    nodes = (
        segment("a", when="false", metrics={"a": {"n": "sum"}}),
        segment("b", after=("a",), when="stages.a.metrics.n > 1"),
    )
    [problem] = [one.problem for one in scheduler(*nodes).start() if isinstance(one, Fail)]
    assert "stages.a.metrics.n > 1" in problem.message
    assert problem.node == "b"


def test_a_condition_that_is_neither_true_nor_false_fails_the_run() -> None:
    [problem] = [one.problem for one in scheduler(segment("a", when="1 + 1")).start() if isinstance(one, Fail)]
    assert (problem.failure, problem.message) == (
        "user error",
        "`when: 1 + 1` of a cannot be judged: gives 2, not true or false",
    )


def test_a_barrier_passes_without_a_task() -> None:
    graph = scheduler(segment("a"), BarrierNode("b", ("b",), data=("a",)), segment("c", ("b",)))
    graph.start()
    assert graph.handle(NodeDone("a", Summary())) == [RunNode("c", {})]


def test_metrics_reach_conditions_and_bindings() -> None:
    nodes = (segment("a"), segment("b", ("a",), when="stages.a.metrics.n > 1", paths=("stages.a.metrics.n",)))
    graph = scheduler(*nodes)
    graph.start()
    [run] = graph.handle(NodeDone("a", Summary(metrics={"a": {"n": 2}})))
    assert isinstance(run, RunNode)
    assert run.bindings["stages"]["a"]["metrics"] == {"n": 2}


def test_failure_ends_the_run_after_running_nodes_have_stopped() -> None:
    graph = scheduler(segment("a"), segment("b"), segment("c", ("a",)))
    graph.start()
    problem = Problem("user error", "no")
    assert graph.handle(NodeFailed("a", problem)) == [Stop("b")]
    assert graph.handle(NodeStopped("b")) == [Fail(problem)]
    assert graph.handle(Unpause()) == [], "once"


def test_a_node_that_ends_well_after_a_failure_still_lets_the_run_fail() -> None:
    graph = scheduler(segment("a"), segment("b"))
    graph.start()
    problem = Problem("user error", "no")
    graph.handle(NodeFailed("a", problem))
    assert graph.handle(NodeDone("b", Summary())) == [Fail(problem)]


def test_pause_stops_and_unpause_runs_again() -> None:
    graph = scheduler(segment("a"))
    graph.start()
    assert graph.handle(Pause()) == [Stop("a")]
    assert graph.handle(NodeStopped("a")) == []
    assert graph.handle(Unpause()) == [RunNode("a", {})]


def test_only_child_runs_are_held_and_released() -> None:
    graph = scheduler(segment("a"), Child("sub", ("sub",), "inner"))
    graph.start()
    assert graph.handle(Pause()) == [Stop("a"), Hold("sub")]
    assert graph.handle(Unpause()) == [Release("sub")]


def test_a_new_limit_restarts_the_stage_with_it() -> None:
    graph = scheduler(segment("a"), segment("b"))
    graph.start()
    assert graph.handle(Limit("a", 3)) == [Stop("a")]
    assert graph.handle(NodeStopped("a")) == [RunNode("a", {}, limit=3)]


def test_lost_blocks_are_recomputed_before_their_reader_reruns() -> None:
    graph = scheduler(segment("a"), segment("b", ("a",)))
    graph.start()
    graph.handle(NodeDone("a", Summary()))
    assert graph.handle(NodeLost("b", ("a/0.1.x", "a/2.1.y"))) == [RunNode("a", {}, repair=("a/0.1.x", "a/2.1.y"))]
    assert graph.handle(NodeDone("a", Summary())) == [RunNode("b", {})]


def test_blocks_lost_while_their_producer_is_repaired_are_repaired_after_it() -> None:
    graph = scheduler(segment("a"), segment("b", ("a",)), segment("c", ("a",)))
    graph.start()
    graph.handle(NodeDone("a", Summary()))
    graph.handle(NodeLost("b", ("a/0.1.x",)))
    assert graph.handle(NodeLost("c", ("a/1.1.x",))) == []
    assert graph.handle(NodeDone("a", Summary())) == [RunNode("a", {}, repair=("a/1.1.x",))]


def test_blocks_of_a_loop_belong_to_the_loop_node() -> None:
    block = "lloyd-7/update/12.1.x"
    assert (segment_of(block), partition_of(block)) == ("lloyd-7/update", 12)
    graph = scheduler(segment("lloyd"), segment("b", ("lloyd",)))
    graph.start()
    graph.handle(NodeDone("lloyd", Summary()))
    assert graph.handle(NodeLost("b", ("lloyd-7/update/0.1.x",))) == [
        RunNode("lloyd", {}, repair=("lloyd-7/update/0.1.x",))
    ]


def test_blocks_from_outside_are_escalated_once_nothing_runs() -> None:
    graph = scheduler(segment("a"), segment("b"), prefix="lloyd-3/")
    graph.start()
    assert graph.handle(NodeLost("a", ("b/0.1.x", "lloyd-2/b/0.1.y"))) == [Stop("b")]
    assert graph.handle(NodeStopped("b")) == [Escalate(("b/0.1.x", "lloyd-2/b/0.1.y"))]
    assert graph.handle(Unpause()) == [], "once"


def test_a_block_that_is_lost_for_ever_fails_the_run() -> None:
    graph = scheduler(segment("a"), segment("b", ("a",)))
    graph.start()
    graph.handle(NodeDone("a", Summary()))
    for _ in range(MAXIMUM_REPAIRS):
        graph.handle(NodeLost("b", ("a/0.1.x",)))
        graph.handle(NodeDone("a", Summary()))
    [problem] = [one.problem for one in graph.handle(NodeLost("b", ("a/0.1.x",))) if isinstance(one, Fail)]
    assert (problem.failure, problem.node) == ("unreachable", "a")


def test_an_event_for_a_node_that_does_not_run_is_a_defect_and_changes_nothing() -> None:
    graph = Scheduler(diamond(), {})
    graph.start()
    problem = Problem("user error", "no")
    known = (NodeDone("d", Summary()), NodeStopped("d"), NodeFailed("d", problem), NodeLost("d", ("a/0.1.x",)))
    for event in (*known, NodeGrouped("d", (0,), 1), NodeDone("nobody", Summary())):
        with pytest.raises(InternalError):
            graph.handle(event)
    assert graph.running == ("a",)


def test_of_several_limits_on_the_stages_of_a_node_the_lowest_holds() -> None:
    graph = scheduler(Segment("b", ("a", "b"), ItemsFeed((), ()), (), Keep(), Policy()), segment("c"))
    for stage, limit in (("a", 5), ("b", 3), ("c", 1)):
        graph.handle(Limit(stage, limit))
    assert (graph.limit_of("b"), graph.limit_of("c")) == (3, 1)


def test_first_of_several_failures_is_reported() -> None:
    graph, first = scheduler(segment("a"), segment("b")), Problem("user error", "first")
    graph.start()
    graph.handle(NodeFailed("a", first))
    assert graph.handle(NodeFailed("b", Problem("user error", "second"))) == [Fail(first)]


def test_facts_of_a_stage_come_from_all_its_nodes() -> None:
    nodes = [Segment(name, ("a",), ItemsFeed((), ()), (), Keep(), Policy()) for name in ("a.1", "a.2")]
    loop = LoopNode("l", ("l",), {}, {}, Graph(()), {}, {}, 3)
    graph = Scheduler(Graph((*nodes, loop, Child("sub", ("sub",), "inner")), {"a": "file:///a"}), {})
    graph.start()
    assert graph.env["stages"] == {}
    for name, metric in (("a.1", "m"), ("a.2", "n")):
        graph.handle(NodeDone(name, Summary(metrics={"a": {metric: 1}}, state={"k": 2}, outputs={"o": 3})))
    for name in ("l", "sub"):
        graph.handle(NodeDone(name, Summary(state={"k": 2}, outputs={"o": 3})))
    assert graph.env["stages"] == {
        "a": {"metrics": {"m": 1, "n": 1}, "output": {"uri": "file:///a"}, "state": {}},
        "l": {"metrics": {}, "output": None, "state": {"k": 2}},
        "sub": {"metrics": {}, "output": None, "state": {}, "outputs": {"o": 3}},
    }


def test_a_run_that_rests_starts_nothing_more() -> None:
    graph = scheduler(segment("a"), segment("b", ("a",)))
    graph.start()
    assert graph.handle(Rest()) == []
    assert graph.handle(NodeDone("a", Summary())) == graph.handle(Unpause()) == []


def test_chain_of_lost_blocks_is_recomputed_from_its_beginning_in_one_go() -> None:
    nodes = (segment("a"), segment("b", ("a",)), segment("c", ("b",)))
    graph = Scheduler(Graph(nodes), {}, {"a": Summary(), "b": Summary()})
    assert graph.start() == [RunNode("c", {})]
    again = RunNode("b", {}, repair=("b/0.1.x",))
    assert graph.handle(NodeLost("c", again.repair)) == [again]
    assert graph.handle(NodeLost("b", ("a/0.1.x",))) == [RunNode("a", {}, repair=("a/0.1.x",))]
    assert graph.handle(NodeDone("a", Summary())) == [again]
    assert graph.handle(NodeDone("b", Summary())) == [RunNode("c", {})]


def test_node_stopped_during_recomputation_recomputes_afterwards() -> None:
    graph = Scheduler(Graph((segment("a"), segment("b", ("a",)))), {}, {"a": Summary()})
    graph.start()
    [again] = graph.handle(NodeLost("b", ("a/0.1.x",)))
    assert graph.handle(Pause()) == [Stop("a")]
    assert graph.handle(NodeStopped("a")) == []
    assert graph.handle(Unpause()) == [again]


def test_blocks_of_an_iteration_are_recomputed_in_it() -> None:
    graph = scheduler(segment("a"), segment("b", ("a",)), prefix="lloyd-3/")
    graph.start()
    graph.handle(NodeDone("a", Summary()))
    assert graph.handle(NodeLost("b", ("lloyd-3/a/0.1.x",))) == [RunNode("a", {}, repair=("lloyd-3/a/0.1.x",))]
    graph.handle(NodeDone("a", Summary()))
    assert graph.handle(NodeLost("b", ("lloyd-3/other/0.1.x",))) == [Escalate(("lloyd-3/other/0.1.x",))]
