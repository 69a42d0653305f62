"""From a batch to the order for its run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from treadle.dsl.templates import template_paths
from treadle.dsl.triggers import KafkaTrigger

from ..events import event_time
from ..starting import StartOrder
from .batch import Batch
from .judge import Version

EVENTS = ("trigger", "events")


def order_for(batch: Batch, version: Version, events: Callable[[Batch, KafkaTrigger], Any]) -> StartOrder:
    """Inputs as `with` says; `events` is asked only when `with` mentions `trigger.events`.

    The batch's time is that of its first event, and its end travels in the memo, for owners who cut otherwise. Raises
    Unfit, and what `events` raises.
    """
    trigger = version.trigger
    first = batch.matched[0]
    value = events(batch, trigger) if EVENTS in template_paths(dict(trigger.with_)) else None
    single = None if trigger.batch else first.event
    inputs = version.rules.inputs(single, event_time(first.event, first.record), value)
    memo = {"end": batch.end, "count": len(batch.matched)} if trigger.batch else {}
    return StartOrder(batch.run, batch.workflow, batch.version, batch.trigger, inputs, memo)
