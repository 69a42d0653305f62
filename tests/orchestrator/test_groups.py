"""Task groups in the scheduler: a table of events and instructions."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.executors.program import Keep, RangeSplit
from treadle.orchestrator.dispatcher.tasks.dataset_scope import range_inputs
from treadle.orchestrator.plan.plan import Graph, ItemsFeed, Policy, Segment
from treadle.orchestrator.planner.sources import cut_runs
from treadle.orchestrator.scheduler.instructions import (
    Complete,
    Fail,
    GroupDone,
    Limit,
    NodeDone,
    NodeFailed,
    NodeGrouped,
    NodeLost,
    NodeStopped,
    Pause,
    Problem,
    Rest,
    RunNode,
    Stop,
    Summary,
    Unpause,
)
from treadle.orchestrator.scheduler.scheduler import Scheduler
from treadle.orchestrator.scheduler.task_groups import AT_ONCE, OpenTaskGroups, bounds_of, count_of
from treadle.primitives.errors import InternalError
from treadle.primitives.shuffling.partitioning import split_evenly


def segment(name: str, data: tuple[str, ...] = (), most: int = 0, **known: Any) -> Segment:
    return Segment(name, (name,), ItemsFeed((), ()), (), Keep(), Policy(max_concurrency=most), data=data, **known)


def wide(*groups: int, seats: int = 2, most: int = 0) -> Scheduler:
    """A scheduler with a wide node that has reported its open groups. `b` reads the node."""
    graph = Scheduler(Graph((segment("a", most=most), segment("b", ("a",)))), {})
    assert graph.start() == [RunNode("a", {})]
    graph.handle(NodeGrouped("a", groups, seats))
    return graph


def started(graph: Scheduler) -> list[int]:
    """The groups that run."""
    return sorted(graph._groups["a"]._running)  # private: running groups have no other sign


def test_groups_take_the_seats_there_are_and_then_the_node_puts_them_together() -> None:
    graph = Scheduler(Graph((segment("a"), segment("b", ("a",)))), {})
    graph.start()
    assert graph.handle(NodeGrouped("a", (0, 1, 2), 2)) == [RunNode("a", {}, group=0), RunNode("a", {}, group=1)]
    assert graph.handle(GroupDone("a", 1)) == [RunNode("a", {}, group=2)]
    assert graph.handle(GroupDone("a", 0)) == []
    assert graph.running == ("a",)
    assert graph.handle(GroupDone("a", 2)) == [RunNode("a", {})]
    assert graph.handle(NodeDone("a", Summary())) == [RunNode("b", {})]
    assert graph.handle(NodeDone("b", Summary())) == [Complete()]


def test_groups_that_are_known_before_need_no_opening() -> None:
    graph = Scheduler(Graph((segment("a"),)), {}, groups={"a": NodeGrouped("a", (3, 4), 9)})
    assert graph.start() == [RunNode("a", {}, group=3), RunNode("a", {}, group=4)]


def test_node_whose_groups_are_all_closed_only_puts_them_together() -> None:
    graph = Scheduler(Graph((segment("a"),)), {}, groups={"a": NodeGrouped("a", (), 9)})
    assert graph.start() == [RunNode("a", {})]


def test_drivers_that_come_get_groups_with_the_next_report() -> None:
    graph = wide(0, 1, 2, 3, 4, 5, seats=1)
    assert graph.handle(GroupDone("a", 0, seats=3)) == [RunNode("a", {}, group=group) for group in (1, 2, 3)]


def test_a_group_that_fails_stops_the_others_and_fails_the_run_after_them() -> None:
    graph, problem = wide(0, 1, 2), Problem("user error", "no")
    assert graph.handle(NodeFailed("a", problem, 0)) == [Stop("a")]
    assert graph.handle(NodeFailed("a", Problem("user error", "stopped"), 1)) == [Stop("a"), Fail(problem)]


def test_lost_block_is_recomputed_after_the_other_groups_end() -> None:
    graph = Scheduler(Graph((segment("p"), segment("a", ("p",)))), {}, {"p": Summary()})
    graph.start()
    graph.handle(NodeGrouped("a", (0, 1, 2), 2))
    assert graph.handle(NodeLost("a", ("p/4.1.x",), 0)) == []
    assert graph.handle(GroupDone("a", 1)) == [RunNode("p", {}, repair=("p/4.1.x",))]
    assert graph.handle(NodeDone("p", Summary())) == [RunNode("a", {})]


def test_repair_of_a_wide_producer_reaches_its_groups_and_its_closing() -> None:
    graph = Scheduler(Graph((segment("a"), segment("b", ("a",)))), {}, {"a": Summary()})
    graph.start()
    blocks = ("a/27.1.x", "a/7.1.x", "a/8.1.x")
    assert graph.handle(NodeLost("b", blocks)) == [RunNode("a", {}, blocks)]
    first, second = RunNode("a", {}, blocks[1:], group=0), RunNode("a", {}, blocks[:1], group=2)
    assert graph.handle(NodeGrouped("a", (0, 2), 4, size=10)) == [first, second]
    assert graph.handle(GroupDone("a", 0)) == []
    assert graph.handle(GroupDone("a", 2)) == [RunNode("a", {}, blocks)]
    assert graph.handle(NodeDone("a", Summary())) == [RunNode("b", {})]


def test_wide_node_recomputes_its_blocks_after_its_lost_input() -> None:
    done = {"p": Summary(), "a": Summary()}
    graph = Scheduler(Graph((segment("p"), segment("a", ("p",)), segment("b", ("a",)))), {}, done)
    graph.start()
    blocks = ("a/0.1.x", "a/10.1.x")
    assert graph.handle(NodeLost("b", blocks)) == [RunNode("a", {}, blocks)]
    assert graph.handle(NodeGrouped("a", (0, 1), 1, size=10)) == [RunNode("a", {}, blocks[:1], group=0)]
    assert graph.handle(NodeLost("a", ("p/0.1.x",), 0)) == [RunNode("p", {}, ("p/0.1.x",))]
    assert graph.handle(NodeDone("p", Summary())) == [RunNode("a", {}, blocks)]


def test_pause_stops_every_group_and_unpause_asks_which_are_left() -> None:
    graph = wide(0, 1, 2)
    assert graph.handle(Pause()) == [Stop("a")]
    assert graph.handle(GroupDone("a", 0)) == []
    assert graph.handle(NodeStopped("a", 1)) == []
    assert graph.running == ()
    assert graph.handle(Unpause()) == [RunNode("a", {})]


def test_unpause_before_all_have_stopped_loses_no_group() -> None:
    graph = wide(0, 1, 2)
    graph.handle(Pause())
    graph.handle(Unpause())
    assert graph.handle(NodeStopped("a", 0)) == []
    assert graph.handle(NodeStopped("a", 1)) == [RunNode("a", {})]


def test_a_limit_is_shared_by_all_groups() -> None:
    graph = wide(*range(20), seats=100)
    assert graph.handle(Limit("a", 7)) == [Stop("a")]
    for group in range(20):
        instructions = graph.handle(NodeStopped("a", group))
    assert instructions == [RunNode("a", {}, limit=7)]
    runs = [one for one in graph.handle(NodeGrouped("a", tuple(range(20)), 100)) if isinstance(one, RunNode)]
    assert sum(one.limit for one in runs) == 7
    assert all(one.limit for one in runs)


def test_the_concurrency_of_the_plan_is_shared_too() -> None:
    graph = Scheduler(Graph((segment("a", most=5),)), {}, groups={"a": NodeGrouped("a", (0, 1), 9)})
    assert graph.start() == [RunNode("a", {}, limit=2, group=0), RunNode("a", {}, limit=3, group=1)]


def test_rest_lets_groups_end_and_starts_none() -> None:
    graph = wide(0, 1, 2)
    graph.handle(Rest())
    assert graph.handle(GroupDone("a", 0)) == []
    assert graph.handle(GroupDone("a", 1)) == []
    assert graph.running == ()


def test_an_event_for_a_group_that_does_not_run_is_a_defect_and_changes_nothing() -> None:
    graph = wide(0, 1, 2)
    for event in (GroupDone("a", 2), GroupDone("b", 0), NodeDone("a", Summary()), NodeStopped("a")):
        with pytest.raises(InternalError):
            graph.handle(event)
    assert started(graph) == [0, 1]


@given(st.integers(0, 60), st.integers(1, 700), st.integers(0, 40), st.data())
def test_every_group_runs_once_within_seats_and_limit(count: int, seats: int, limit: int, data: st.DataObject) -> None:
    groups, shares, seen = OpenTaskGroups(range(count), seats, limit), dict[int, int](), list[int]()
    while True:
        shares |= (begun := dict(groups.start()))
        seen += begun
        assert len(shares) <= min(seats, AT_ONCE)
        assert not limit or (sum(shares.values()) <= limit and all(shares.values()))
        if not shares:
            break
        ended = data.draw(st.sampled_from(sorted(shares)))
        assert groups.over(ended)
        del shares[ended]
    assert sorted(seen) == list(range(count))


def test_drivers_that_come_or_go_change_nothing_of_shares_and_there_is_one_at_least() -> None:
    groups = OpenTaskGroups(range(6), 2, limit=4)
    assert groups.start() == [(0, 2), (1, 2)]
    assert groups.over(0, seats=5)
    assert groups.start() == [(2, 2)]
    assert OpenTaskGroups([7], 0).start() == [(7, 0)]


@given(st.integers(1, 10_000), st.integers(1, 700))
def test_bounds_of_groups_cover_every_partition_once(partitions: int, size: int) -> None:
    groups = [bounds_of(group, partitions, size) for group in range(count_of(partitions, size))]
    assert [one for group in groups for one in group] == list(range(partitions))
    assert all(0 < len(group) <= size for group in groups)
    assert bounds_of(-1, partitions, size) == range(partitions)


@given(st.integers(0, 300), st.integers(1, 40), st.integers(0, 30))
def test_pieces_of_a_range_equal_its_cut_runs(count: int, partitions: int, longest: int) -> None:
    wanted = [RangeSplit(*run) for run in cut_runs(split_evenly(count, partitions), longest)]
    assert list(range_inputs(count, partitions, longest)) == wanted
