"""Bad lines and failed records of files equal the reference interpreter's, for any execution of the stages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from treadle.client.testing.strategies import Case

from .conftest import Site
from .test_generated import check

LINES = b'{"k": 1}\n\nNaN\n{"k": 2}\n{\n{"k": 3}\n{"k": 4}\n'
ROWS = b'k,v\n1,2\n3\n4,"x\ny"\n5,6,7\n8,9\n'


def tolerant(format: str, **settings: Any) -> dict[str, Any]:
    source = {"uri": f"in/*.{format}", "format": format, **({"split": "24B"} if format == "jsonl" else {})}
    return {
        "type": "map",
        "input": source,
        "uses": "properties.functions:picky",
        "toleratedFailures": "100%",
        "failedItems": {"uri": "failed/${{ run.id }}/a"},
        **settings,
    }


def case(stages: dict[str, Any]) -> Case:
    document = {"apiVersion": "treadle/v1", "name": "records", "defaults": {"retry": {"maximumAttempts": 1}}}
    return Case({**document, "stages": stages}, files={"in/a.jsonl": LINES, "in/b.jsonl": LINES, "in/a.csv": ROWS})


PARTITIONS = {"per": "partition", "uses": "properties.functions:counted"}


@pytest.mark.parametrize("format", ["jsonl", "csv"])
@pytest.mark.parametrize(
    "settings",
    [{}, {"batch": {"maxItems": 2}}, {"batch": {"maxBytes": "300B"}}, PARTITIONS, {"toleratedFailures": 1}],
    ids=["alone", "items", "bytes", "partitions", "too many"],
)
def test_bad_lines_are_failed_records(sites: Callable[[int, bool], Site], format: str, settings: Any) -> None:
    check(case({"a": tolerant(format, **settings)}), sites(2, False))


@pytest.mark.parametrize("second", ["placed", "picky", "several"])
def test_bad_lines_do_not_show_in_later_stages(sites: Callable[[int, bool], Site], second: str) -> None:
    later: dict[str, Any] = {"type": "map", "input": "a", "uses": f"properties.functions:{second}"}
    later |= {"toleratedFailures": "100%", "failedItems": {"uri": "failed/${{ run.id }}/b"}}
    check(case({"a": tolerant("jsonl"), "b": later}), sites(2, False))


@pytest.mark.parametrize("stage", ["map", "barrier", "reduce", "broadcast"])
def test_a_bad_line_fails_the_run_where_nothing_is_tolerated(sites: Callable[[int, bool], Site], stage: str) -> None:
    source = {"uri": "in/*.jsonl", "format": "jsonl"}
    stages: dict[str, Any] = {"a": {"type": "map", "input": source, "uses": "properties.functions:number"}}
    if stage == "reduce":
        stages = {"a": {**stages["a"], "type": "reduce", "per": "all", "uses": "properties.functions:of_all"}}
    if stage == "broadcast":
        stages = {"a": {"type": "broadcast", "input": source}}
    if stage == "barrier":
        stages = {"w": {"type": "barrier", "input": "b"}, "b": stages["a"], "c": tolerant("csv", input="w")}
    check(case(stages), sites(2, False))
