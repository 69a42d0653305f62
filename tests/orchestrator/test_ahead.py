"""Several nodes in one activity: the same nodes run, and no node that could start waits for it."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st
from orchestrator.test_scheduler import diamond, segment

from treadle.orchestrator.plan.plan import BarrierNode, Child, Graph, LoopNode, Node
from treadle.orchestrator.protocol.messages import NodeReport
from treadle.orchestrator.scheduler.instructions import (
    Complete,
    Fail,
    Instruction,
    Limit,
    NodeDone,
    NodeFailed,
    NodeGrouped,
    NodeLost,
    NodeStopped,
    Pause,
    Problem,
    RunNode,
    Stop,
    Summary,
    Unpause,
)
from treadle.orchestrator.scheduler.scheduler import Scheduler
from treadle.orchestrator.temporal.reports import events_of


def scheduler(*nodes: Node, ahead: int = 9) -> Scheduler:
    return Scheduler(Graph(nodes), {}, ahead=ahead)


def followers(instructions: list[Instruction]) -> list[str]:
    [run] = instructions
    assert isinstance(run, RunNode)
    return [one.node for one in run.then]


def test_node_blocked_by_one_node_follows_it() -> None:
    nodes = (segment("a"), segment("b", ("a",)), BarrierNode("c", ("c",), data=("b",)), segment("d", ("c",)))
    graph = scheduler(*nodes)
    assert followers(graph.start()) == ["b", "d"]
    assert graph.running == ("a", "b", "d")
    assert graph.handle(NodeDone("a", Summary())) == graph.handle(NodeDone("b", Summary())) == []
    assert graph.handle(NodeDone("d", Summary())) == [Complete()]


def test_no_more_follow_than_may() -> None:
    nodes = (segment("a"), segment("b", ("a",)), segment("c", ("b",)))
    assert followers(scheduler(*nodes, ahead=1).start()) == ["b"]
    assert followers(scheduler(*nodes, ahead=0).start()) == []


def test_what_could_run_side_by_side_does_not_follow() -> None:
    assert followers(Scheduler(diamond(), {}, ahead=9).start()) == []


def test_what_waits_for_a_follower_anyway_holds_nothing_back() -> None:
    nodes = (segment("a"), segment("b", ("a",)), segment("c", ("b",)), segment("d", ("a", "c")))
    assert followers(scheduler(*nodes).start()) == ["b", "c", "d"]


def test_what_waits_for_another_branch_does_not_follow() -> None:
    graph = scheduler(segment("a"), segment("b"), segment("c", ("a", "b")))
    assert graph.start() == [RunNode("a", {}), RunNode("b", {})]


def test_reader_of_a_broadcast_follows_it() -> None:
    nodes = (segment("a"), segment("b", ("a",), paths=("stages.a",)))
    assert followers(scheduler(*nodes).start()) == ["b"]


def test_node_with_finished_inputs_waits_for_no_other() -> None:
    """This happens with a cached result of `b` and an expired one of `a`."""
    nodes = Graph((segment("a"), segment("b", ("a",)), segment("c", ("b",))))
    assert Scheduler(nodes, {}, {"b": Summary()}, ahead=9).start() == [RunNode("a", {}), RunNode("c", {})]


def test_data_from_outside_of_the_graph_is_available() -> None:
    assert followers(scheduler(segment("a", ("outside",)), segment("b", ("a", "outside"))).start()) == ["b"]


def test_an_input_that_is_called_like_a_stage_is_known() -> None:
    assert followers(scheduler(segment("a"), segment("b", ("a",), paths=("inputs.a.n",))).start()) == ["b"]


def test_conditions_child_runs_and_metrics_that_are_not_known_yet_are_asked_for() -> None:
    asked = (
        segment("b", ("a",), when="true"),
        Child("b", ("b",), "inner", data=("a",)),
        segment("b", ("a",), paths=("stages.a.metrics.n",)),
        LoopNode("b", ("b",), {}, {}, Graph(()), {}, {}, 3, data=("a",), paths=("stages.a",)),
    )
    for node in asked:
        assert followers(scheduler(segment("a"), node).start()) == []


def test_a_child_run_is_followed_by_none() -> None:
    graph = scheduler(Child("a", ("a",), "inner"), segment("b", ("a",)))
    assert followers(graph.start()) == []
    assert followers(graph.handle(NodeDone("a", Summary()))) == []
    assert graph.running == ("b",)


def test_known_metrics_are_passed_to_followers() -> None:
    nodes = (segment("z"), segment("a", ("z",), when="true"), segment("b", ("a", "z"), paths=("stages.z.metrics.n",)))
    graph = scheduler(*nodes)
    graph.start()
    [run] = graph.handle(NodeDone("z", Summary(metrics={"z": {"n": 7}})))
    assert isinstance(run, RunNode)
    assert run.then[0].bindings["stages"]["z"]["metrics"] == {"n": 7}


def test_limit_is_passed_to_followers() -> None:
    graph = scheduler(segment("a"), segment("b", ("a",)))
    assert graph.handle(Limit("b", 3)) == []
    [run] = graph.start()
    assert isinstance(run, RunNode)
    assert [one.limit for one in run.then] == [3]


def test_a_node_that_is_repaired_is_followed_by_none() -> None:
    graph = scheduler(segment("a"), segment("b", ("a",)))
    graph.start()
    graph.handle(NodeDone("a", Summary()))
    assert graph.handle(NodeLost("b", ("a/0.1.x",))) == [RunNode("a", {}, ("a/0.1.x",))]


def test_a_failure_of_one_fails_the_run_once_its_followers_are_known_not_to_run() -> None:
    graph, problem = scheduler(segment("a"), segment("b", ("a",))), Problem("user error", "no")
    graph.start()
    assert graph.handle(NodeFailed("a", problem)) == [Stop("b")]
    assert graph.handle(NodeStopped("b")) == [Fail(problem)]


def test_a_pause_stops_followers_too_and_they_follow_again() -> None:
    graph = scheduler(segment("a"), segment("b", ("a",)))
    graph.start()
    assert graph.handle(Pause()) == [Stop("a"), Stop("b")]
    for event in events_of(["a", "b"], -1, NodeReport(stopped=True)):
        assert graph.handle(event) == []
    assert followers(graph.handle(Unpause())) == ["b"]


def test_wide_node_follows_and_is_followed_only_while_no_group_runs() -> None:
    nodes = Graph((segment("a"), segment("b", ("a",))))
    for known, wanted in ((NodeGrouped("b", (0,), 1), []), (NodeGrouped("a", (), 1), ["b"])):
        assert followers(Scheduler(nodes, {}, groups={known.node: known}, ahead=9).start()) == wanted


def test_a_wide_follower_is_taken_apart() -> None:
    graph = scheduler(segment("a"), segment("b", ("a",)), segment("c", ("b",)))
    graph.start()
    report = NodeReport(groups=[0, 1], seats=2, size=3, before={"a": Summary()})
    done, grouped, left = events_of(["a", "b", "c"], -1, report)
    assert (done, left) == (NodeDone("a", Summary()), NodeStopped("c"))
    assert grouped == NodeGrouped("b", (0, 1), 2, 3)
    assert [graph.handle(event) for event in (done, grouped)][1] == [
        RunNode("b", {}, group=0),
        RunNode("b", {}, group=1),
    ]


# -- random graphs and orders


@dataclass
class Activities:
    """Activities that carry out Runs, one node after the other. Each step and each end is drawn."""

    nodes: tuple[Node, ...]
    scheduler: Scheduler
    open: list[list[str]] = field(default_factory=list)
    at: list[int] = field(default_factory=list)
    """For each open activity: the number of finished nodes."""
    ran: list[str] = field(default_factory=list)
    over: bool = False

    def obey(self, instructions: list[Instruction]) -> None:
        for one in instructions:
            if isinstance(one, RunNode):
                assert not (one.then and self._is_child(one.node)), "which has no activity to follow in"
                self.open.append([one.node, *(each.node for each in one.then)])
                self.at.append(0)
            else:
                assert one == Complete()
                self.over = True

    def _is_child(self, name: str) -> bool:
        return any(node.id == name and isinstance(node, Child) for node in self.nodes)

    def step(self, index: int, *, ends: bool) -> None:
        """An activity finishes a node. It ends there, or when it has no further node."""
        names = self.open[index]
        assert self._may_run(names[self.at[index]])
        self.ran.append(names[self.at[index]])
        self.at[index] += 1
        if ends or self.at[index] == len(names):
            del self.open[index], self.at[index]
            before = [name for name in names if name in self.ran][:-1]
            summary = Summary()
            for event in events_of(names, -1, NodeReport(summary, before=dict.fromkeys(before, summary))):
                self.obey(self.scheduler.handle(event))

    def held_back(self) -> list[str]:
        """Nodes that could run, and that no activity runs."""
        now = {names[at] for names, at in zip(self.open, self.at, strict=True)}
        return [
            node.id
            for node in self.nodes
            if not isinstance(node, BarrierNode) and node.id not in now | {*self.ran} and self._may_run(node.id)
        ]

    def _may_run(self, name: str) -> bool:
        [node] = [node for node in self.nodes if node.id == name]
        return all(self._is_over(need) for need in (*node.data, *node.after))

    def _is_over(self, name: str) -> bool:
        """Returns whether a node is over. A barrier is over once its needs are."""
        barriers = [node.id for node in self.nodes if isinstance(node, BarrierNode)]
        return self._may_run(name) if name in barriers else name in self.ran


@st.composite
def graphs(draw: st.DrawFn) -> tuple[Node, ...]:
    names = [f"n{index}" for index in range(draw(st.integers(1, 9)))]
    return tuple(draw(_nodes(name, names[:index])) for index, name in enumerate(names))


@st.composite
def _nodes(draw: st.DrawFn, name: str, before: list[str]) -> Node:
    needs = tuple(draw(st.lists(st.sampled_from(before), max_size=3, unique=True))) if before else ()
    when = draw(st.sampled_from(("", "", "", "true")))
    match draw(st.sampled_from(("segment", "segment", "segment", "barrier", "child"))):
        case "barrier":
            return BarrierNode(name, (name,), data=needs, when=when)
        case "child":
            return Child(name, (name,), "inner", data=needs, when=when)
    return segment(name, needs, when=when)


@given(graphs(), st.integers(0, 9), st.data())
def test_every_node_runs_once_in_order_and_none_that_could_run_is_held_back(
    nodes: tuple[Node, ...], ahead: int, data: st.DataObject
) -> None:
    here = Activities(nodes, scheduler(*nodes, ahead=ahead))
    here.obey(here.scheduler.start())
    while not here.over:
        assert not here.held_back()
        index = data.draw(st.integers(0, len(here.open) - 1))
        here.step(index, ends=data.draw(st.booleans()))
    assert sorted(here.ran) == [node.id for node in nodes if not isinstance(node, BarrierNode)]
