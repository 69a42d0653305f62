"""What a flow becomes when it is closed: how its edge is judged, what it leaves, what may not join it."""

from __future__ import annotations

import math

import msgspec
import pytest
from orchestrator.test_planner import GROUPS, PAIRS, SITE, mapped, plan, segments

from treadle.executors.program import Keep
from treadle.orchestrator.planner.transport import Figures

REQUESTS = Figures(store_seconds=100.0, store_rate=math.inf, link_seconds=1.0, link_rate=math.inf)
"""Each part costs a second, and bytes nothing."""
PEERS = msgspec.structs.replace(SITE, one_host=False, peers=True, figures=REQUESTS)
FOUR = {"range": 8, "partitions": 4}


@pytest.mark.parametrize(("partitions", "seconds"), [(7, 7), (1, 1), (None, 4)])
def test_an_edge_costs_by_its_producers_and_their_parts(partitions: int | None, seconds: int) -> None:
    """As many slots as producers: a second for each target, of which there are as many as producers by default."""
    groups = GROUPS if partitions is None else {**GROUPS, "partitions": partitions}
    found = segments(plan({"pairs": {**PAIRS, "input": FOUR}, "groups": groups}, site=PEERS))
    assert f"predicted {seconds}.0 s directly" in found["groups"].reasons[-1]


def test_what_is_read_whole_is_one_part_of_each_producer() -> None:
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
