"""The segments of a plan that run in task groups, and the reasons in the plan."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from orchestrator.planner.test_planner import SITE

from treadle.executors.program import Keep
from treadle.orchestrator.plan.plan import BarrierNode, Graph, ItemsFeed, Policy, Segment
from treadle.orchestrator.planner.task_groups import in_groups

GANG = "one task group: a gang runs together"
QUORUM = "one task group: 99.5% of all partitions close it, whichever they are"


def said(count: int, size: str) -> str:
    return f"{count} task groups of at most {size} partitions, each for whichever driver has room"


@pytest.mark.parametrize(
    ("drivers", "partitions", "more", "group", "reasons"),
    [
        (1, 5_000, {}, 0, ()),
        (1, 5_001, {}, 5_000, (said(2, "5,000"),)),
        (1, 5_001, {"policy": Policy(gang=5_001)}, 0, (GANG,)),
        (1, 5_001, {"quorum": 99.5}, 0, (QUORUM,)),
        (1, 0, {}, 5_000, ()),
        (1, 0, {"quorum": 80.0}, 0, ()),
        (2, 5_001, {}, 626, (said(8, "626"),)),
        (2, 5_001, {"quorum": 99.5}, 0, (QUORUM,)),
        (2, 0, {}, 5_000, ()),
    ],
)
def test_possibly_wide_stage_runs_in_groups_unless_it_is_judged_as_a_whole(
    drivers: int, partitions: int, more: dict[str, Any], group: int, reasons: tuple[str, ...]
) -> None:
    segment = Segment("a", ("a",), ItemsFeed((), ()), (), Keep(), Policy(), partitions=partitions, reasons=("why",))
    wait = BarrierNode("b", ("b",), data=("a",))
    given = Graph((msgspec.structs.replace(segment, **more), wait))
    found, after = in_groups(given, msgspec.structs.replace(SITE, drivers=drivers)).nodes
    assert isinstance(found, Segment)
    assert (found.group, found.reasons) == (group, ("why", *reasons))
    assert after == wait
