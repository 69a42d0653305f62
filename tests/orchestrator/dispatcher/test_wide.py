"""A shuffle of two levels: the condition for it, its number of parts, and the cost of a lost block."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import pytest
from orchestrator.broken_runs import Broken, values
from orchestrator.conftest import Breaking
from orchestrator.planner.test_planner import plan, segments
from orchestrator.record_histories import M, mapped, spec

from treadle.executors.program import BlockInput, Merge, Outcome, Scatter
from treadle.orchestrator.dispatcher.tasks.dataset_scope import Gathered
from treadle.orchestrator.plan.plan import BundleFeed, NarrowFeed, NodeData
from treadle.orchestrator.planner import exchanges, explain
from treadle.orchestrator.planner.exchanges import levels_of
from treadle.primitives.encoding.references import BlockRef, Part

KIB = 2**10


def shuffled(sources: int, targets: int, **more: Any) -> dict[str, Any]:
    return {
        "pairs": mapped({"range": sources * 3, "partitions": sources}, "pair"),
        "groups": {"type": "shuffle", "input": "pairs", "by": "key", "partitions": targets, **more},
        "counts": {"type": "reduce", "input": "groups", "per": "key", "combine": f"{M}:add"},
    }


@pytest.fixture
def from_four_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchanges, "WIDE", 4)


# -- the decision --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sources", "targets", "estimate", "two"),
    [
        ([250], 200, 0, False),
        ([251], 200, 0, True),
        ([126, 126], 200, 0, True),
        ([1], 2_000_000, 0, False),
        ([1000, 0], 1000, 0, False),
        ([1000], 0, 0, False),
        ([300], 300, 300 * 300 * 32 * KIB, True),
        ([300], 300, 300 * 300 * 33 * KIB, False),
        ([1001], 1000, 1001 * 1000 * 33 * KIB, True),
    ],
)
def test_many_parts_take_two_levels_unless_they_are_large(
    sources: list[int], targets: int, estimate: int, two: bool
) -> None:
    assert (levels_of(sources, targets, estimate)[0] is not None) == two


def test_groups_and_runs_are_square_roots() -> None:
    levels, reason = levels_of([4000, 1], 4000, 0)
    assert levels is not None
    assert (levels.groups, levels.runs, levels.tasks) == (63, (64, 1), (63 * 63, 63))
    assert reason == (
        "two levels: 4,001 x 4,000 = 16,004,000 parts are more than 50,000; "
        "in 63 groups of targets they are 252,063 + 256,000"
    )


def test_plan_of_two_levels() -> None:
    found = segments(plan(shuffled(400, 300)))
    first, second, reader = found["groups.level1"], found["groups"], found["counts"]
    assert isinstance(first.tail, Scatter)
    assert (first.tail.partitions, first.tail.groups, first.stages) == (300, 17, ("pairs", "groups"))
    assert second.feed == BundleFeed(NodeData(("groups.level1",), "scattered"), 20)
    assert (second.tail, second.ops, second.partitions, second.stages) == (Merge("groups"), (), 340, ("groups",))
    assert reader.feed == NarrowFeed(NodeData(("groups",), "scattered", 17))
    assert reader.partitions == 300


def test_plan_says_why() -> None:
    views = {view.node: view for view in explain.explain(plan(shuffled(400, 300)))}
    assert "groups: scatter by key to 300 partitions, in 17 bundles (hash)" in views["groups.level1"].does
    assert any(reason.startswith("two levels: 400 x 300 = 120,000") for reason in views["groups.level1"].reasons)
    assert views["groups"].reads == "bundles of groups.level1, 20 at a time"


def test_second_level_may_be_repeated_though_the_stage_may_not() -> None:
    found = segments(plan(shuffled(400, 300, idempotent=False, executor="isolated")))
    first, second = found["groups.level1"], found["groups"]
    assert (first.policy.idempotent, second.data) == (False, ("groups.level1",))
    assert second.policy == msgspec.structs.replace(first.policy, idempotent=True)


def test_width_that_only_the_run_shows_is_one_level(from_four_parts: None) -> None:
    stages = shuffled(8, 9) | {"cut": mapped("pairs", batch={"maxBytes": "100B"})}
    stages["groups"]["input"] = "cut"
    assert "groups.level1" not in segments(plan(stages))


# -- the run -------------------------------------------------------------------------------------------------------


def parts_made(run: Broken) -> tuple[Any, Counter[Any], dict[str, list[int]]]:
    """(result, outcomes, segment -> parts of each block)."""
    parts: dict[str, list[int]] = {}

    def see(segment: str, outcome: Outcome) -> None:
        parts.setdefault(segment, []).append(len(outcome.block.parts) if outcome.block else 0)

    found, done = run.go(see)
    return found, done, parts


def test_parts_go_from_a_product_to_its_roots(breaking: Breaking, monkeypatch: pytest.MonkeyPatch) -> None:
    document = spec(**shuffled(30, 20))
    one, _, single = parts_made(breaking(document))
    monkeypatch.setattr(exchanges, "WIDE", 4)
    two, done, parts = parts_made(breaking(document))
    assert single["groups"] == [20] * 30
    assert parts["groups.level1"] == [4] * 30
    assert parts["groups"] == [5] * 4 * 5
    assert sum(parts["groups.level1"] + parts["groups"]) == 30 * 4 + 5 * 20 < sum(single["groups"])
    assert set(done.values()) == {1}
    assert values(two, "counts") == values(one, "counts")


@pytest.mark.parametrize("lost", [("groups.level1", 5), ("groups", 3)])
def test_lost_block_of_either_level_costs_its_producer_alone(
    from_four_parts: None, breaking: Breaking, lost: tuple[str, int]
) -> None:
    run = breaking(spec(**shuffled(8, 9)))
    found, done = run.go(run.losing(lost))
    wanted = Counter(number % 3 for number in range(24))
    assert sum(len(part) for part in values(found, "counts")) == len(wanted)
    assert {one for one, times in done.items() if times > 1} == {lost}
    assert done[lost] == 2


# -- reading -------------------------------------------------------------------------------------------------------


def blocks_of(names: str, parts: int) -> list[BlockRef]:
    return [BlockRef(name, "objects", 0, tuple(Part(64 * at, 64, 1, 0) for at in range(parts))) for name in names]


def test_reader_of_a_target_gets_its_part_of_each_run_in_order() -> None:
    first = [*blocks_of("ab", 3), *blocks_of("cd", 2)]
    gathered = Gathered([first, [*blocks_of("e", 3), *blocks_of("f", 2)], []], groups=2)
    read = [[[(one.name, one.part.offset // 64) for one in row] for row in each.inputs] for each in gathered]
    assert read == [
        *([[("a", at), ("b", at)], [("e", at)], []] for at in range(3)),
        *([[("c", at), ("d", at)], [("f", at)], []] for at in range(2)),
    ]
    assert all(each.pieces for each in gathered)


def test_gathered_targets_are_a_sequence() -> None:
    gathered = Gathered([blocks_of("ab", 4)])
    assert len(gathered) == 4
    assert gathered[-1] == gathered[3] == gathered[2:][1]
    assert isinstance(gathered[0], BlockInput)
    with pytest.raises(IndexError):
        gathered[4]
    assert len(Gathered([[], []], groups=3)) == 0
