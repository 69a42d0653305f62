"""The events that drivers emit: CloudEvents 1.0 with ids that depend only on the event, not on its delivery.

Delivery is at least once: a retried activity sends its events again, with the same `source` and `id`. Consumers drop
repeats by these (https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/spec.md#id).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from msgspec import Struct

from treadle.primitives.events import Event
from treadle.primitives.events.decode import rfc3339

from ..scheduler.instructions import Problem, Summary

RunNews = Literal["started", "completed", "failed", "cancelled"]
StageNews = Literal["started", "completed", "failed"]
CONTENT_TYPE = "application/cloudevents+json; charset=utf-8"
LARGEST_OUTPUTS = 64 * 2**10
"""Bytes. Larger outputs are left out, since brokers and receivers have limits."""
_SHOWN = 2_000
"""Maximum of characters in a failure's message."""


class About(Struct, frozen=True):
    """The run that an event is about."""

    run: str
    workflow: str
    resumption: int
    began: str
    """First start of the run, RFC 3339. It distinguishes runs that get the same id one after the other."""


def run_news(about: About, what: RunNews, now: float, **more: Any) -> Event:
    """`more`: further members of `data`. Members with None are left out."""
    return _event(about, f"run.{what}", "", now, more)


def stage_news(about: About, what: StageNews, stage: str, now: float, **more: Any) -> Event:
    return _event(about, f"stage.{what}", stage, now, {"stage": stage, **more})


def ended(outputs: Mapping[str, Any] | None, skipped: tuple[str, ...], problem: Problem | None) -> dict[str, Any]:
    """The end of a run, as members of `data`. Outputs above LARGEST_OUTPUTS are replaced by `outputsOmitted`."""
    found: dict[str, Any] = {"skipped": list(skipped) or None, "failure": problem and failure(problem)}
    if outputs is None:
        return found
    if len(msgspec.json.encode(outputs)) > LARGEST_OUTPUTS:
        return {**found, "outputsOmitted": True}
    return {**found, "outputs": dict(outputs)}


def stage_done(stage: str, summary: Summary, last: bool) -> dict[str, Any]:
    """The result of a stage, as members of `data`. `last`: the node's counts are the stage's."""
    found: dict[str, Any] = {"metrics": summary.metrics.get(stage, {})}
    if last:
        found |= {"partitions": summary.partitions, "rows": summary.rows, "failedItems": summary.failed_items}
    return found


def failure(problem: Problem) -> dict[str, Any]:
    return {"class": problem.failure, "message": problem.message[:_SHOWN], "node": problem.node}


def to_json(event: Event) -> bytes:
    """The JSON format of CloudEvents (structured mode)."""
    document: dict[str, Any] = {"specversion": "1.0", "id": event.id, "source": event.source, "type": event.type}
    optional = {"subject": event.subject, "time": event.time, "datacontenttype": event.datacontenttype}
    document |= {name: value for name, value in optional.items() if value is not None}
    return msgspec.json.encode({**document, **event.extensions, "data": event.data})


def _event(about: About, what: str, place: str, now: float, more: Mapping[str, Any]) -> Event:
    known = {"run": about.run, "workflow": about.workflow, "resumption": about.resumption, **more}
    steps = (about.run, about.began, str(about.resumption), *((place,) if place else ()), what)
    return Event(
        id="/".join(steps),
        source=f"/treadle/{about.workflow}",
        type=f"dev.treadle.{what}.v1",
        subject=about.run,
        time=rfc3339(now),
        datacontenttype="application/json",
        data={name: value for name, value in known.items() if value is not None},
    )
