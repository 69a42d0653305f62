"""Temporal's history has segments, never partitions, so it is small for any number of items."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from orchestrator.record_histories import ITEMS, TESTS, M, mapped, spec
from temporalio.api.enums.v1 import EventType

from treadle.client.testing.service import Service

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def events(here: Service, run: str) -> Counter[str]:
    return Counter(EventType.Name(event.event_type) for event in (await here.history(run)).events)


def bound(found: Counter[str], segments: int, updates: int = 0, groups: int = 0) -> int:
    """Events that a run may have."""
    again = found["EVENT_TYPE_WORKFLOW_TASK_FAILED"] + found["EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT"]
    return 40 + 6 * (segments + groups + again) + 6 * updates


async def run_of(here: Service, run: str, document: dict[str, Any], folder: Path) -> Counter[str]:
    await here.submit(document, run, folder, TESTS)
    end = await here.runs.end(run)
    assert end.failure is None, end
    return await events(here, run)


async def test_ten_thousand_items_tracked_one_by_one_leave_a_short_history(here: Service, tmp_path: Path) -> None:
    document = spec(each=mapped({"range": 10_000}, batch={"maxItems": 1}))
    found = await run_of(here, "many", document, tmp_path)
    assert sum(found.values()) <= bound(found, segments=1, groups=2)
    manifest = here.runs.files("many").manifest("each")
    assert manifest is not None
    assert manifest.expected == len(manifest.outcomes) == 10_000


async def test_history_of_few_items_is_as_long_as_that_of_many(here: Service, tmp_path: Path) -> None:
    found = [
        await run_of(here, f"range-{count}", spec(each=mapped({"range": count}, batch={"maxItems": 1})), tmp_path)
        for count in (1, 1000)
    ]
    for one in found:
        assert one["EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED"] == 1
        assert one["EVENT_TYPE_ACTIVITY_TASK_SCHEDULED"] <= 1  # none for short work


async def test_iterations_of_a_loop_leave_no_events(here: Service, tmp_path: Path) -> None:
    turns: dict[str, Any] = {
        "type": "loop",
        "state": {"count": 0},
        "maxIterations": 200,
        "stages": {"step": mapped(ITEMS)},
        "next": {"count": "${{ state.count + 1 }}"},
    }
    found = await run_of(here, "turns", spec(turns=turns), tmp_path)
    assert found["EVENT_TYPE_ACTIVITY_TASK_SCHEDULED"] <= 1
    assert sum(found.values()) <= bound(found, segments=1)


async def test_updates_cost_six_events_each(here: Service, tmp_path: Path) -> None:
    flag = tmp_path / "go"
    document = spec(first=mapped(ITEMS, "slowly", **{"with": {"flag": str(flag)}}), then=mapped(ITEMS, needs=["first"]))
    await here.submit(document, "updated", tmp_path, TESTS)
    await here.runs.steer("updated", "limit", "then", 1)
    await here.runs.steer("updated", "pause")
    await here.runs.steer("updated", "unpause")
    updates = 3
    flag.touch()
    assert (await here.runs.end("updated")).failure is None
    found = await events(here, "updated")
    assert found["EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_COMPLETED"] == updates
    assert sum(found.values()) <= bound(found, segments=2, updates=updates)


async def test_shape_of_a_map_reduce_in_the_history(here: Service, tmp_path: Path) -> None:
    document = spec(
        pairs=mapped({"range": 500, "partitions": 50}, "pair"),
        groups={"type": "shuffle", "input": "pairs", "by": "key"},
        counts={"type": "reduce", "input": "groups", "per": "key", "combine": f"{M}:add"},
    )
    found = await run_of(here, "map-reduce", document, tmp_path)
    assert found["EVENT_TYPE_MARKER_RECORDED"] == 2, "opening the run, and two segments of which one follows the other"
    assert found["EVENT_TYPE_ACTIVITY_TASK_SCHEDULED"] <= 1, "the rest of work that was not short"
    assert sum(found.values()) <= bound(found, segments=2)
