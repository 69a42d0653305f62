"""The segment made of a closed flow: the place of its blocks, its output, and the stages that may not join it."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest
from orchestrator.planner.test_planner import GROUPS, PAIRS, SITE, mapped, plan, segments

from treadle.executors.program import Keep
from treadle.orchestrator.planner.transport import Figures
from treadle.primitives.errors import UsageError

REQUESTS = Figures(store_seconds=100.0, store_rate=math.inf, link_seconds=1.0, link_rate=math.inf)
"""Each part costs a second, and bytes cost nothing."""
PEERS = msgspec.structs.replace(SITE, one_host=False, peers=True, figures=REQUESTS)
FOUR = {"range": 8, "partitions": 4}


@pytest.mark.parametrize(("partitions", "seconds"), [(7, 7), (1, 1), (None, 4)])
def test_an_edge_costs_by_its_producers_and_their_parts(partitions: int | None, seconds: int) -> None:
    """With as many slots as producers: a second for each target. By default there are as many targets as producers."""
    groups = GROUPS if partitions is None else {**GROUPS, "partitions": partitions}
    found = segments(plan({"pairs": {**PAIRS, "input": FOUR}, "groups": groups}, site=PEERS))
    assert f"predicted {seconds}.0 s directly" in found["groups"].reasons[-1]


def test_input_read_whole_is_one_part_of_each_producer() -> None:
    stages = {"pairs": {**PAIRS, "input": FOUR}, "all": {"type": "broadcast", "input": "pairs"}}
    found = segments(plan(stages, site=PEERS))
    assert found["pairs"].tail == Keep()
    assert "predicted 1.0 s directly, 200.0 s through the store" in found["pairs"].reasons[-1]


@pytest.mark.parametrize("tolerated", [0, 1, "0%", "1%"])
def test_stages_that_tolerate_differently_are_apart(tolerated: int | str) -> None:
    first, then = mapped(FOUR), mapped("a", toleratedFailures=tolerated)
    assert set(segments(plan({"a": first, "b": then}))) == {"a", "b"}
    assert set(segments(plan({"a": {**first, "toleratedFailures": tolerated}, "b": then}))) == {"b"}
    assert set(segments(plan({"a": {**first, "toleratedFailures": tolerated}, "b": mapped("a")}))) == {"a", "b"}


def test_blocks_that_shared_memory_holds_alone_but_not_together_say_so() -> None:
    waits = {"then": {"type": "barrier", "input": "a"}, "last": {"type": "barrier", "input": "b"}}
    stages = {"a": mapped(FOUR), "b": mapped("then"), "c": mapped("last"), **waits}
    roomy, tight = (segments(plan(stages, site=msgspec.structs.replace(SITE, host_budget=room))) for room in (256, 255))
    assert [segment.estimate for segment in roomy.values()] == [128, 128, 128]
    crowded = "; all stages leave about 256 B there, and there is room for 255 B: what shared memory cannot hold goes"
    for name in ("a", "b"):
        assert tight[name].reasons[-1] == f"{roomy[name].reasons[-1]}{crowded} to the store"
    assert tight["c"] == roomy["c"], "which leaves its blocks in the store"


def test_a_description_may_say_anything() -> None:
    said = mapped(FOUR, description="${{ what")
    assert set(segments(plan({"a": said, "b": mapped("a", description="${{ stages.c }}"), "c": mapped("b")}))) == {"c"}


NONE = "${{ inputs.none }}"


@pytest.mark.parametrize(
    "stage",
    [
        mapped({"range": 3, "partitions": NONE}),
        mapped({"items": [1], "partitions": NONE}),
        mapped({"range": "${{ inputs.none - 1 }}"}),
        mapped(FOUR, batch={"maxItems": NONE}),
        mapped(FOUR, maxConcurrency=NONE),
        {**GROUPS, "input": {"items": [[1, 2]]}, "partitions": NONE},
        {"type": "reduce", "input": FOUR, "per": "all", "combine": "m:add", "fanIn": NONE},
        {"type": "loop", "state": {"n": 1}, "maxIterations": NONE, "stages": {"in": mapped(FOUR)}},
    ],
)
def test_a_computed_number_keeps_to_the_bounds_of_a_written_one(stage: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"at least [012] is needed here"):
        plan({"a": stage}, inputs={"none": {"type": "integer"}}, given={"none": 0})


@pytest.mark.parametrize("given", [None, ""])
@pytest.mark.parametrize(
    "stage",
    [
        mapped({"uri": NONE, "format": "text"}),
        mapped(FOUR, output={"uri": NONE, "format": "jsonl"}),
        mapped(FOUR, toleratedFailures=1, failedItems={"uri": NONE}),
    ],
)
def test_missing_place_is_not_read_as_a_folder_of_that_name(stage: dict[str, Any], given: str | None) -> None:
    with pytest.raises(UsageError, match="and a text is needed here"):
        plan({"a": stage}, inputs={"none": {"type": "uri"}}, given={"none": given})


FEW = {"few": {"type": "integer"}, "more": {"type": "integer"}}


def test_missing_list_is_reported_by_its_name() -> None:
    with pytest.raises(UsageError, match="the input 'few' has no value, and a stage reads it") as refused:
        plan({"a": mapped("inputs.few")}, inputs={"few": {"type": "list"}}, given={"few": None})
    assert refused.value.hint == "Give it: -i few=..."


@pytest.mark.parametrize("template", ["${{ inputs.few + 1 }}", "${{ inputs.few + inputs.more }}"])
def test_template_over_a_missing_input_names_both(template: str) -> None:
    with pytest.raises(UsageError) as refused:
        plan({"a": mapped({"range": template})}, inputs=FEW, given={"few": None, "more": 1})
    assert str(refused.value) == f"{template}: expected a number, got null\n  Give it: -i few=..."
