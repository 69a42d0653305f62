"""The complete workflows of docs/triggers.md: valid, and started by the events of the page."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from treadle.dsl.document.workflow_files import load
from treadle.dsl.expressions import parse
from treadle.dsl.normalise import normalise
from treadle.dsl.validation.validate import validate
from treadle.triggers.dry_run import SampleEvent, try_event
from treadle.triggers.registry.deployment import Deployment

PAGE = (Path(__file__).parents[2] / "docs" / "triggers.md").read_text("utf-8")
BLOCKS = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.M | re.S)
WORKFLOWS = {found[1]: text for text in BLOCKS if (found := re.search(r"^name: (\w+)", text, re.M))}
(NOTIFICATION,) = re.findall(r"^\$ cat put\.json\n(.*)$", PAGE, re.M)


def deployment(name: str) -> Deployment:
    document = load(WORKFLOWS[name])
    assert validate(document) == []
    return Deployment(name, 1, 0.0, normalise(document.require()), {"rows:load": {}}, "", "/srv")


def test_the_page_shows_each_way_to_hear_of_objects() -> None:
    ways = {name: deployment(name).document["triggers"]["files"] for name in WORKFLOWS}
    assert {name: next(key for key in ("poll", "kafka", "webhook") if key in one) for name, one in ways.items()} == {
        "looks": "poll",
        "listens": "kafka",
        "is_called": "webhook",
    }


@pytest.mark.parametrize("name", ["looks", "listens", "is_called"])
def test_a_notification_starts_a_run_that_reads_the_object(name: str) -> None:
    (trial,) = try_event(deployment(name), "files", SampleEvent(NOTIFICATION.encode()), ["s3://lake/in/"])
    assert (trial.verdict, trial.reason) == ("starts", "")
    assert trial.inputs == {"rows": {"uri": "s3://lake/in/a.jsonl", "format": "jsonl"}}
    other: Any = json.loads(NOTIFICATION)
    other["Records"][0]["s3"]["object"] = {"key": "out/a.csv", "size": 0}
    (trial,) = try_event(deployment(name), "files", SampleEvent(json.dumps(other).encode()), ["s3://lake/in/"])
    assert trial.verdict == "passed over"


def test_the_filter_of_the_page_can_be_read() -> None:
    (text,) = (one for one in BLOCKS if one.startswith("filter:"))
    parse(text.partition(">-")[2].strip())
