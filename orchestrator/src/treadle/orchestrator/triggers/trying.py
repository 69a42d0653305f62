"""What a trigger would make of a sample: the same judgement, mapping and checks as for a real event. Starts nothing."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

import msgspec
from msgspec import Struct

from treadle.dsl.triggers import KafkaTrigger, ScheduleTrigger, Trigger
from treadle.primitives.errors import UsageError
from treadle.primitives.events.records import as_item

from .allowed import check_allowed
from .events import Event, Record, Undecodable, decode, event_time
from .identity import label, run_prefix
from .kafka.judge import Lineage, Version
from .mapping import Rules, Unfit
from .registry.deployment import Deployment
from .schedules.ticks import order_for
from .starting import StartOrder

NOWHERE = "TOPIC-UUID"
"""Stands for a topic's UUID in ids: a sample lies in no topic."""


class Trial(Struct, frozen=True):
    """How an event or a time fares."""

    trigger: str
    """`orders.live`"""
    version: int
    verdict: Literal["starts", "passed over", "dead letter"]
    reason: str = ""
    """Of a dead letter."""
    event: dict[str, Any] | None = None
    """As expressions see it."""
    inputs: dict[str, Any] | None = None
    """Of the run, with defaults filled in."""
    run: str = ""
    """Its id; TOPIC-UUID and the zeros after it stand for the record's own place."""


class Sample(Struct, frozen=True):
    """An event as its producer would send it."""

    value: bytes
    key: bytes | None = None
    headers: tuple[tuple[str, bytes], ...] = ()


def trigger_of(deployment: Deployment, name: str) -> Trigger:
    """Raises UsageError when this version has no such trigger."""
    found = deployment.spec.triggers.get(name)
    if found is None:
        known = ", ".join(sorted(deployment.spec.triggers)) or "none"
        raise UsageError(f"{deployment.name} has no trigger {name!r}", f"It has: {known}.")
    return found


def try_event(deployment: Deployment, name: str, sample: Sample, allow: Sequence[str] | None) -> Trial:
    """Raises UsageError for a trigger that takes no events."""
    trigger = trigger_of(deployment, name)
    if isinstance(trigger, ScheduleTrigger):
        raise UsageError(f"{label(deployment.workflow, name)} is a schedule", "Give a time: --time 2026-01-31T02:00")
    about = (label(deployment.workflow, name), deployment.version)
    try:
        event, run = _judged(deployment, name, trigger, sample)
    except (Undecodable, Unfit) as error:
        return Trial(*about, "dead letter", error.message)
    shown = msgspec.structs.asdict(event)
    if not run:
        return Trial(*about, "passed over", event=shown)
    rules = Rules(name, trigger)
    batched = isinstance(trigger, KafkaTrigger) and trigger.batch is not None
    items = [as_item(event, isinstance(trigger, KafkaTrigger) and trigger.envelope)]
    try:
        inputs = rules.inputs(None if batched else event, event_time(event), items)
        return _checked(Trial(*about, "starts", event=shown, run=run), deployment, inputs, allow)
    except UsageError as error:
        return Trial(*about, "dead letter", error.message, shown)


def try_tick(deployment: Deployment, name: str, nominal: datetime, allow: Sequence[str] | None) -> Trial:
    """What the schedule starts for a nominal time. Raises UsageError for what is no schedule."""
    about = (label(deployment.workflow, name), deployment.version)
    if not isinstance(trigger_of(deployment, name), ScheduleTrigger):
        raise UsageError(f"{about[0]} takes events, not times", "Give a sample: --event FILE")
    try:
        order = order_for(deployment, name, nominal)
        return _checked(Trial(*about, "starts", run=order.run), deployment, order.inputs, allow)
    except UsageError as error:
        return Trial(*about, "dead letter", error.message)


def fired(deployment: Deployment, name: str, trial: Trial, now: float, nonce: str) -> StartOrder:
    """The start that a person asks for. A time has one run, whoever asks; a sample event gets a new one each time."""
    run = trial.run
    if trial.event is not None:
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
        run = f"{run_prefix(deployment.workflow, name)}fired.{stamp}.{nonce}"
    inputs = {key: value for key, value in (trial.inputs or {}).items() if value is not None}
    return StartOrder(run, deployment.workflow, deployment.version, name, inputs)


def _checked(trial: Trial, deployment: Deployment, inputs: Mapping[str, Any], allow: Sequence[str] | None) -> Trial:
    submission = deployment.submission(trial.run, inputs)
    check_allowed(allow, submission)
    return msgspec.structs.replace(trial, inputs=submission.inputs)


def _judged(deployment: Deployment, name: str, trigger: Trigger, sample: Sample) -> tuple[Event, str]:
    """The event, and the id of its run; empty: passed over. Raises Undecodable, Unfit."""
    if isinstance(trigger, KafkaTrigger):
        return _of_topic(deployment, name, trigger, sample)
    raise UsageError(f"{name} is of type {trigger.type}, of which no sample can be tried", "Send it one.")


def _of_topic(deployment: Deployment, name: str, trigger: KafkaTrigger, sample: Sample) -> tuple[Event, str]:
    headers: tuple[tuple[str, bytes | None], ...] = sample.headers
    record = Record(trigger.topics[0], NOWHERE, 0, 0, sample.key, sample.value, headers, time.time())
    version = Version(deployment.version, trigger, Rules(name, trigger), {})
    judged = Lineage(deployment.workflow, name, (version,)).judge(record)
    if judged.reason:
        raise Unfit(judged.reason)
    return judged.event or decode(record, trigger.format, trigger.connection), judged.run
