"""From a batch to the order for its run."""

from __future__ import annotations

from typing import Any

from treadle.dsl.templates import template_paths
from treadle.dsl.triggers import KafkaTrigger
from treadle.primitives.events.records import as_item

from ..events import event_time
from ..starting import StartOrder
from .batch import Batch, EventsOf
from .judge import Version

EVENTS = ("trigger", "events")


def order_for(batch: Batch, version: Version, events: EventsOf) -> StartOrder:
    """Inputs as `with` says; `events` is asked only when `with` mentions `trigger.events`.

    The batch's time is that of its first event, and its end travels in the memo, for owners who cut otherwise. Raises
    Unfit, and what `events` raises.
    """
    first = batch.matched[0]
    value = None
    if EVENTS in template_paths(dict(version.trigger.with_)):
        value = _events(batch, version, events)
    batched = version.reading.batch is not None
    inputs = version.rules.inputs(None if batched else first.event, event_time(first.event, first.record), value)
    memo = {"end": batch.end, "count": len(batch.matched)} if batched else {}
    return StartOrder(batch.run, batch.workflow, batch.version, batch.trigger, inputs, memo)


def _events(batch: Batch, version: Version, events: EventsOf) -> Any:
    if isinstance(version.trigger, KafkaTrigger):
        return events(batch, version.trigger)
    return [as_item(one.event, False) for one in batch.matched]  # objects are small: what they are, not what they hold
