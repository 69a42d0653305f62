"""Metrics of triggers, as Prometheus reads them."""

from __future__ import annotations

import re

import pytest
from orchestrator.test_telemetry import in_a_process_of_its_own, samples

SERVICE = """
import json, urllib.request
from treadle.orchestrator.telemetry.metrics_server import metrics_page
from treadle.triggers.metrics import watch_triggers
from treadle.triggers.trigger_runner import TriggerStatus

with metrics_page("127.0.0.1:0") as page:
    live = TriggerStatus("w", "live", "kafka", 1, "running", 3, 1, 2, 7, received=6, repeated=1, filtered=2)
    hook = TriggerStatus("w", "hook", "webhook", 1, "failed", 4, error="no secret", since=5.0)
    watch_triggers(lambda: [live, hook])
    text = urllib.request.urlopen(page).read().decode()
print(json.dumps({"text": text}))
"""
LIVE = {'workflow="w"', 'trigger="live"', 'type="kafka"'}
HOOK = {'workflow="w"', 'trigger="hook"', 'type="webhook"'}


@pytest.fixture(scope="module")
def seen() -> dict[str, object]:
    return in_a_process_of_its_own(SERVICE)


@pytest.mark.parametrize(
    ("name", "live", "hook"),
    [
        ("received_total", 6, None),
        ("started_total", 3, 4),
        ("repeated_total", 1, None),
        ("filtered_total", 2, None),
        ("dead_total", 1, 0),
        ("active", 2, None),
        ("lag", 7, None),
        ("failing_since_seconds", 0, 5),
    ],
)
def test_trigger_metric_has_a_sample_where_the_number_is_known(
    name: str, live: int, hook: int | None, seen: dict[str, object]
) -> None:
    expected = {frozenset(LIVE): live, frozenset(HOOK): hook}
    known = {labels: number for labels, number in expected.items() if number is not None}
    assert samples(seen, re.escape(f"treadle_trigger_{name}")) == known


def test_trigger_metric_names_the_state(seen: dict[str, object]) -> None:
    states = {frozenset({*LIVE, 'state="running"'}): 1, frozenset({*HOOK, 'state="failed"'}): 1}
    assert samples(seen, "treadle_trigger_state") == states
