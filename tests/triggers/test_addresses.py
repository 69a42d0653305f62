"""The addresses that a triggered run opens are checked; the data of an event is not."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from orchestrator.planner.test_planner import SITE

from treadle.dsl import model, triggers
from treadle.dsl.model import Spec
from treadle.dsl.model_base import Model
from treadle.dsl.normalise import normalise
from treadle.orchestrator.planner import make_plan
from treadle.orchestrator.run_store.child_runs import child_submission
from treadle.orchestrator.run_store.run_files import Submission
from treadle.orchestrator.run_store.uri_policy import Forbidden, is_below
from treadle.primitives.errors import UsageError
from treadle.primitives.events import Event
from treadle.primitives.events.decode import event_time
from treadle.triggers.event_mapping import Rules, accepted
from treadle.triggers.registry.deployment import Deployment

STARTED = "2026-01-01T00:00:00Z"
ALLOW = ("s3://lake/orders/", "in")
NO_FILES = msgspec.structs.replace(SITE, assumed_bytes=100)
"""Plans without listing any store."""
OFFSETS = {"connection": "c", "topic": "salaries", "topicId": "u", "partition": 0, "start": 0, "runs": [1]}
RANGE = {"kafka": OFFSETS}
READS = {"type": "map", "input": "inputs.orders", "uses": "m:f"}


def deployment(mapped: Mapping[str, Any], stages: Mapping[str, Any] | None = None, **types: str) -> Deployment:
    """A workflow with one webhook, `hook`. `types`: the types of its inputs."""
    document = {
        "apiVersion": "treadle/v1",
        "name": "w",
        "inputs": {
            name: {"type": kind} | ({"required": True} if kind == "dataset" else {}) for name, kind in types.items()
        },
        "stages": stages or {"each": READS if "orders" in types else {**READS, "input": {"items": [1]}}},
        "triggers": {"hook": {"type": "webhook", "with": dict(mapped)}},
    }
    spec = Spec.model_validate(document, by_alias=True, by_name=False)
    return Deployment("w", 1, 0.0, normalise(spec), {"m:f": {}}, "", "/srv/project")


def started(one: Deployment, data: Any) -> Submission:
    """The submission of an event's run. Raises UsageError."""
    event = Event("1", "/s", "t", data=data)
    inputs = Rules(one, "hook").inputs(event, event_time(event))
    return accepted(one, "hook", "w.hook.1", inputs, ALLOW)


# -- data ----------------------------------------------------------------------------------------------------------

GITHUB = {
    "action": "opened",
    "issue": {"url": "https://api.github.com/repos/o/r/issues/1", "body": "use `${{ github.token }}`", "uri": "/x"},
    "repository": {"clone_url": "git://github.com/o/r.git", "uri": "https://github.com/o/r"},
}
RECEIPT = {"id": 7, "uri": "/etc/passwd", "link": "https://shop/receipts/7", "kafka": OFFSETS}
ENVELOPE = {"source": "kafka://prod/orders.v1", "id": "0/1", "data": {"uri": "s3://private/x"}}
TEXTS = st.sampled_from(["https://a/b", "s3://private/x", "/etc/passwd", "file:///x", "../x", "${{ x }}", "", "plain"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXTS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["uri", "kafka", "output", "a"]), inner, max_size=3)
    ),
    max_leaves=10,
)


@given(JSON)
@example(GITHUB)
@example(RECEIPT)
@example(ENVELOPE)
def test_records_of_an_event_are_data_for_every_content(value: Any) -> None:
    one = deployment({"orders": {"items": ["${{ event.data }}"]}}, orders="dataset")
    assert started(one, value).inputs["orders"] == {"items": [value]}


@given(st.lists(JSON, max_size=3), TEXTS)
def test_lists_and_texts_of_an_event_are_data(items: list[Any], text: str) -> None:
    mapped = {"some": "${{ event.data.items }}", "note": "${{ event.data.text }}"}
    stages = {"each": {**READS, "input": {"items": [1]}, "with": {"uri": "${{ inputs.note }}"}}}
    run = started(deployment(mapped, stages, some="list", note="string"), {"items": items, "text": text})
    assert run.inputs == {"some": items, "note": text}


def test_data_of_an_event_stays_data_in_a_child() -> None:
    inner = deployment({}, orders="dataset", note="string").run_spec
    given = {"orders": "${{ inputs.orders }}", "note": "${{ inputs.note }}"}
    stages = {"sub": {"type": "workflow", "uses": inner, "with": given}}
    mapped = {"orders": {"items": ["${{ event.data }}"]}, "note": "${{ event.data.link }}"}
    run = started(deployment(mapped, stages, orders="dataset", note="string"), RECEIPT)
    child = child_submission(run, STARTED, "w.hook.1/sub", {})
    assert child.inputs == {"orders": {"items": [RECEIPT]}, "note": "https://shop/receipts/7"}


# -- addresses -----------------------------------------------------------------------------------------------------

PLACES = ["in/a.jsonl", "in/*.jsonl", "s3://lake/orders/a.jsonl", "s3://lake/orders/*/a.jsonl"]
OUTSIDE = ["/etc/passwd.jsonl", "../x.jsonl", "s3://lake/x.jsonl", "s3://private/*.jsonl", "in/../../x.jsonl", "s3://*"]
SOURCES = st.sampled_from(PLACES + OUTSIDE).flatmap(
    lambda uri: st.sampled_from([uri, {"uri": uri, "format": "jsonl"}, json.dumps({"uri": uri, "format": "text"})])
)
HOSTILE = SOURCES | st.sampled_from([RANGE, json.dumps(RANGE), {"items": [RANGE]}, {"items": [{"uri": "/etc/passwd"}]}])
INNER = deployment(
    {}, {"each": {**READS, "output": {"uri": "${{ inputs.to }}", "format": "jsonl"}}}, orders="dataset", to="uri"
).run_spec
EVERYWHERE = {
    "read": {**READS, "output": {"uri": "in/${{ inputs.day }}/out", "format": "jsonl"}},
    "typed": {"type": "map", "input": {"uri": "${{ inputs.to }}", "format": "text"}, "uses": "m:f"},
    "lax": {**READS, "toleratedFailures": 1, "failedItems": {"uri": "${{ inputs.to }}/bad"}},
    "turns": {
        "type": "loop",
        "state": {"n": 1},
        "maxIterations": 1,
        "stages": {
            "inside": {
                "type": "shuffle",
                "input": [{"uri": "in/${{ inputs.day }}/*", "format": "jsonl"}, "inputs.orders"],
                "by": ["a"],
                "partitions": 1,
            }
        },
    },
    "sub": {"type": "workflow", "uses": INNER, "with": {"orders": "${{ inputs.orders }}", "to": "${{ inputs.day }}"}},
}
MAPPED = {"orders": "${{ event.data.orders }}", "to": "${{ event.data.to }}", "day": "${{ event.data.day }}"}
WORKFLOW = deployment(MAPPED, EVERYWHERE, orders="dataset", to="uri", day="string")


@given(HOSTILE, st.sampled_from(PLACES + OUTSIDE), st.sampled_from([*PLACES, *OUTSIDE, "a", "..", "../..", "*"]))
@example("in/a.jsonl", "in/b", "in/c")
def test_no_event_makes_a_run_open_a_forbidden_place(orders: Any, to: str, day: str) -> None:
    try:
        run = started(WORKFLOW, {"orders": orders, "to": to, "day": day})
    except UsageError:
        return
    family = [run, child_submission(run, STARTED, f"{run.run}/sub", {})]
    for uri in (uri for one in family for uri in opened(one)):
        assert any(is_below(uri, prefix, Path(run.base)) for prefix in ALLOW), uri


def test_runs_whose_addresses_are_allowed_start() -> None:
    run = started(WORKFLOW, {"orders": "in/a.jsonl", "to": "s3://lake/orders/b", "day": "in/c"})
    assert {uri.removeprefix("/srv/project/") for uri in opened(run)} == {
        *("in/a.jsonl", "s3://lake/orders/b", "in/in/c/out", "s3://lake/orders/b/bad", "in/in/c/*", "in/c"),
    }


@pytest.mark.parametrize("value", [RANGE, json.dumps(RANGE)])
def test_an_event_chooses_no_range_of_a_topic(value: Any) -> None:
    with pytest.raises(Forbidden, match=r"input orders .* range of Kafka offsets that an event chose"):
        started(deployment({"orders": "${{ event.data.orders }}"}, orders="dataset"), {"orders": value})
    own = deployment({"orders": "${{ trigger.events }}"}, orders="dataset")
    assert accepted(own, "hook", "w.hook.1", {"orders": RANGE}, ALLOW).inputs["orders"] == RANGE


def test_a_child_reads_no_range_that_its_parent_was_not_given() -> None:
    sub = {"type": "workflow", "uses": deployment({}, orders="dataset").run_spec}
    stages = {"each": READS, "sub": {**sub, "with": {"orders": "${{ inputs.orders }}"}}}
    own = deployment({"orders": "${{ trigger.events }}"}, stages, orders="dataset")
    run = accepted(own, "hook", "w.hook.1", {"orders": RANGE}, ALLOW)
    assert child_submission(run, STARTED, "w.hook.1/sub", {}).inputs["orders"] == RANGE
    other = {"kafka": {**OFFSETS, "topic": "others"}}
    known = {**run.spec, "stages": {"sub": {**sub, "with": {"orders": other}}}}
    with pytest.raises(Forbidden, match="was not given"):
        child_submission(msgspec.structs.replace(run, spec=known), STARTED, "w.hook.1/sub", {})


def test_every_address_of_the_language_is_known() -> None:
    """A new key with an address must be added to `uri_policy`, and to the stages above."""
    found = {
        f"{kind.__name__}.{name}"
        for module in (model, triggers)
        for kind in vars(module).values()
        if isinstance(kind, type) and issubclass(kind, Model)
        for name, annotation in vars(kind).get("__annotations__", {}).items()
        if "Uri" in annotation
    }
    assert found == {"Source.uri", "Output.uri", "FailedItems.uri", "Poll.uri"}


def opened(run: Submission) -> Iterator[str]:
    """Every address that the run's plan opens."""
    spec = Spec.model_validate(run.spec)
    plan = make_plan(spec, run.inputs, {"id": run.run, "startTime": STARTED}, run.functions, Path(run.base), NO_FILES)
    yield from addresses(msgspec.to_builtins(plan.graph))


def addresses(node: Any) -> Iterator[str]:
    """Each address in a plan, except those in literal records."""
    if isinstance(node, dict):
        for key, value in node.items():
            if key in ("uri", "failed_items") and value:
                yield value
            elif key != "items":
                yield from addresses(value)
    elif isinstance(node, list | tuple):
        for item in node:
            yield from addresses(item)
