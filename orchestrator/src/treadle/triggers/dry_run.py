"""The effect of a trigger on a sample: the same filter, mapping and checks as for a real event. Starts nothing."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from treadle.dsl.triggers import KafkaTrigger, ScheduleTrigger, Trigger, WebhookTrigger
from treadle.primitives.errors import UsageError
from treadle.primitives.events import Record
from treadle.primitives.events.decode import decode
from treadle.primitives.events.records import as_item
from treadle.primitives.events.signatures import body_id

from .event_mapping import accepted, event_env
from .kafka.batch import KafkaBatch, Match
from .kafka.matching import Lineage, lineage
from .kafka.payloads.event_payloads import inline_size, range_of
from .kafka.payloads.transfer_choice import Topic, choose
from .registry.changes import listens_to
from .registry.deployment import Deployment
from .run_ids import label, run_prefix
from .schedules.tick_runs import is_tick, order_for, schedule_of
from .start_requests import StartOrder
from .webhook.requests import Hook, RequestProblem, read

NOWHERE = "TOPIC-UUID"
"""Placeholder for a topic's UUID in ids, because a sample is in no topic."""


class Trial(Struct, frozen=True):
    """The result for an event or a time."""

    trigger: str
    """`orders.live`"""
    version: int
    verdict: Literal["starts", "passed over", "dead letter"]
    reason: str = ""
    """Reason of a dead letter."""
    event: dict[str, Any] | None = None
    """The event as expressions see it."""
    inputs: dict[str, Any] | None = None
    """Inputs of the run, with defaults filled in."""
    run: str = ""
    """Id of the run; TOPIC-UUID and the following zeros are placeholders for the record's location."""


class SampleEvent(Struct, frozen=True):
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


def try_event(deployment: Deployment, name: str, sample: SampleEvent, allow: Sequence[str] | None) -> list[Trial]:
    """One trial; several for a notification about several objects. Raises UsageError for a schedule."""
    trigger = trigger_of(deployment, name)
    about = (label(deployment.workflow, name), deployment.version)
    if isinstance(trigger, ScheduleTrigger):
        raise UsageError(f"{about[0]} is a schedule", "Give a time: --time 2026-01-31T02:00")
    if at := lineage([replace(deployment, begins={})], name):
        return _of_topic(deployment, at, trigger, sample, allow)
    try:
        orders = read(
            Hook(deployment, name), _request_headers(trigger, sample), sample.value, secret=None, now=time.time()
        )
    except RequestProblem as problem:
        return [Trial(*about, "dead letter", problem.message)]
    trials = [_accepted(Trial(*about, "starts", run=one.run), deployment, one.inputs, allow) for one in orders]
    return trials or [Trial(*about, "passed over")]


def try_times(
    deployment: Deployment, name: str, nominals: Sequence[datetime], allow: Sequence[str] | None
) -> list[Trial]:
    """The starts of the schedule for those nominal times that match it; several if a local time occurs twice.

    Raises UsageError when the schedule does not exist, or none of the times matches it.
    """
    settings = schedule_of(deployment, name)
    ticks = [nominal for nominal in nominals if is_tick(settings, nominal)]
    if not ticks:
        times = listens_to(deployment.workflow, name, settings)
        text = f"{label(deployment.workflow, name)} has no tick at {nominals[0].isoformat()}"
        raise UsageError(text, f"Give a time of its own: {times}.")
    return [_try_tick(deployment, name, nominal, allow) for nominal in ticks]


def _try_tick(deployment: Deployment, name: str, nominal: datetime, allow: Sequence[str] | None) -> Trial:
    about = (label(deployment.workflow, name), deployment.version)
    try:
        order = order_for(deployment, name, nominal)
    except UsageError as error:
        return Trial(*about, "dead letter", error.message)
    return _accepted(Trial(*about, "starts", run=order.run), deployment, order.inputs, allow)


def fired(deployment: Deployment, name: str, trial: Trial, now: float, nonce: str) -> StartOrder:
    """The start requested by the user. A time has only one run, however it is requested; a sample event gets a new run
    each time."""
    run = trial.run
    if not isinstance(trigger_of(deployment, name), ScheduleTrigger):
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
        run = f"{run_prefix(deployment.workflow, name)}fired.{stamp}.{nonce}"
    inputs = {key: value for key, value in (trial.inputs or {}).items() if value is not None}
    return StartOrder(run, deployment.workflow, deployment.version, name, inputs)


def _accepted(trial: Trial, deployment: Deployment, inputs: Mapping[str, Any], allow: Sequence[str] | None) -> Trial:
    """The trial with the inputs that the run would have, if the workflow and the profile accept them."""
    try:
        submission = accepted(deployment, trial.trigger.rpartition(".")[2], trial.run, inputs, allow)
    except UsageError as error:
        return replace(trial, verdict="dead letter", reason=error.message, run="")
    return replace(trial, inputs=submission.inputs)


def _of_topic(
    deployment: Deployment, at: Lineage, trigger: Trigger, sample: SampleEvent, allow: Sequence[str] | None
) -> list[Trial]:
    about = (label(at.workflow, at.name), deployment.version)
    headers: tuple[tuple[str, bytes | None], ...] = sample.headers
    record = Record(at.newest.reading.topics[0], NOWHERE, 0, 0, sample.key, sample.value, headers, time.time())
    judged = at.judge(record)
    if judged.reason:
        return [Trial(*about, "dead letter", judged.reason)]
    trials = [_mapped(Trial(*about, "starts"), one, deployment, at, allow) for one in judged.matches]
    shown = event_env(decode(record, trigger.format, trigger.connection)) if isinstance(trigger, KafkaTrigger) else None
    return trials or [Trial(*about, "passed over", event=shown)]


def _mapped(trial: Trial, match: Match, deployment: Deployment, at: Lineage, allow: Sequence[str] | None) -> Trial:
    trial = replace(trial, event=event_env(match.event), run=match.run)
    batch = KafkaBatch(deployment.version, (match,), 1)
    try:
        order = at.newest.order_for(batch, _events)
    except UsageError as error:
        return replace(trial, verdict="dead letter", reason=error.message, run="")
    return _accepted(trial, deployment, order.inputs, allow)


def _events(batch: KafkaBatch, trigger: KafkaTrigger) -> Any:
    """The events as the run would read them. It is assumed that the sample's topic keeps its records; otherwise a range
    would refer to a copy.

    Raises UsageError for events that cannot be inline if the trigger requires that.
    """
    items = [as_item(one.event, trigger.envelope) for one in batch.matched]
    way = choose(trigger.events, inline_size(items), 0.0, Topic(None))
    return items if way == "inline" else range_of(batch, trigger)


def _request_headers(trigger: Trigger, sample: SampleEvent) -> dict[str, str]:
    """The headers with which the sender would send the body. The signature is not checked here."""
    cloudevent = isinstance(trigger, WebhookTrigger) and trigger.format == "cloudevents"
    known = {"content-type": f"application/{'cloudevents+' if cloudevent else ''}json"}
    known["webhook-id"] = body_id(sample.value)
    return known | {key.lower(): value.decode(errors="replace") for key, value in sample.headers}
