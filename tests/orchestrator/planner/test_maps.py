"""The planned operations of maps, and the failed records and metrics of their segments."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from orchestrator.planner.test_planner import SITE, SOURCE, mapped, plan, segments

from treadle.executors.program import Call, Cut, MapPartition, MapRecords, Value
from treadle.orchestrator.plan.plan import Tolerance

MORE: dict[str, Any] = {
    "with": {"n": 3},
    "metrics": {"rows": "sum"},
    "flat": True,
    "toleratedFailures": 2,
    "retry": {"nonRetryableErrorTypes": ["ValueError"]},
}
ASSUMED = msgspec.structs.replace(SITE, assumed_bytes=100)
CALL = Call("m:f", {"n": Value(3)})


def test_a_map_of_records_says_all_that_was_written() -> None:
    found = segments(plan({"a": mapped(SOURCE, **MORE)}))["a"]
    assert found.ops == (MapRecords("a", CALL, True, True, ("ValueError",), {"rows": "sum"}),)
    assert found.metrics == {"a": {"rows": "sum"}}


@pytest.mark.parametrize("whole", [False, True])
def test_a_map_of_partitions_says_all_that_was_written(whole: bool) -> None:
    source = {"uri": "in/*.txt", "format": "text"}
    given = mapped(source, per="partition", whole=whole, **MORE)
    (found,) = segments(plan({"a": given}, site=ASSUMED))["a"].ops
    assert found == MapPartition("a", CALL, True, whole, True, ("ValueError",), {"rows": "sum"})
    plain = segments(plan({"a": mapped(SOURCE, per="partition")}))["a"]
    assert plain.ops == (MapPartition("a", Call("m:f")),)
    assert (plain.tolerated, plain.metrics) == ({}, {"a": {}})


@pytest.mark.parametrize(
    ("given", "known", "inexact"),
    [
        (0, Tolerance(count=0), ()),
        (3, Tolerance(count=3), ("a: toleratedFailures 3",)),
        ("0%", Tolerance(percent=0.0), ()),
        ("0.5%", Tolerance(percent=0.5), ("a: toleratedFailures 0.5%",)),
    ],
)
def test_tolerance_is_in_the_segment_and_shown_where_results_depend_on_it(
    given: Any, known: Tolerance, inexact: tuple[str, ...]
) -> None:
    found = plan({"a": mapped(SOURCE, toleratedFailures=given)})
    assert segments(found)["a"].tolerated == {"a": known}
    assert found.inexact == inexact


def test_where_failed_items_go_is_an_absolute_place() -> None:
    kept = {"toleratedFailures": 1, "failedItems": {"uri": "bad/items.jsonl"}}
    found = segments(plan({"a": mapped(SOURCE, **kept)}))["a"]
    assert found.tolerated["a"].failed_items.endswith("/nowhere/bad/items.jsonl")


@pytest.mark.parametrize(
    ("batch", "cut"),
    [
        ({"maxItems": 5}, Cut(5, 0)),
        ({"maxBytes": "1KiB"}, Cut(0, 1024)),
        ({"maxItems": 5, "maxBytes": "9B"}, Cut(5, 9)),
    ],
)
def test_rebatched_data_is_cut_at_its_reader_with_a_note(batch: dict[str, Any], cut: Cut) -> None:
    source = {"uri": "in/*.txt", "format": "text"}
    found = segments(plan({"a": mapped(source, batch=batch, executor="isolated")}, site=ASSUMED))
    assert found["a.cut"].tail == cut
    assert [found[name].policy.executor for name in ("a.cut", "a")] == ["isolated", "isolated"]
    assert "a has its own partitions: a.cut re-cuts its input" in found["a"].reasons
