"""Checks triggers: times, topics, settings that exclude each other, and the types of inputs."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from pydantic import JsonValue

from treadle.primitives.errors import UsageError

from ..diagnostics.diagnostics import Path, a, did_you_mean, one_of
from ..evaluation import Unfit, evaluate_within_budget, jobs
from ..evaluation.budget import is_small
from ..expressions import Expr, ExpressionError, Type
from ..expressions import Path as Name
from ..model import Input, Spec
from ..templates import OPEN, mentioned, parse_template, whole
from ..trigger_time import MOMENT
from ..triggers import (
    INLINE_LIMIT,
    EventTrigger,
    KafkaTrigger,
    ObjectTrigger,
    ScheduleTrigger,
    Trigger,
    WebhookTrigger,
)
from ..units import format_duration, format_size
from .cron import CronError, parse_cron
from .expressions import INPUT_TYPES, Expressions, ExpressionSite
from .inputs import WORDS, InputError, accept, undeclared
from .report import Report

_OBJECT = dict.fromkeys(("uri", "bucket", "key", "eTag", "versionId"), Type.STRING) | {"size": Type.INT}
_ATTRIBUTES = ("id", "source", "type", "subject", "time", "datacontenttype")
_EVENTS = Name(("trigger", "events"))
_EVENTS_TEXT = f"{OPEN} {_EVENTS} }}}}"
_STORES = ("s3", "gs", "az", "file")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
"""https://github.com/apache/kafka/blob/4.0.0/clients/src/main/java/org/apache/kafka/common/internals/Topic.java"""
_LEAST_CATCHUP = 10.0
"""Seconds; the least that Temporal accepts. https://docs.temporal.io/schedule#catchup-window"""


def check_triggers(spec: Spec, expressions: Expressions, report: Report) -> None:
    """Check all triggers of a document."""
    for name, trigger in spec.triggers.items():
        path: Path = ("triggers", name)
        match trigger:
            case ScheduleTrigger():
                _check_schedule(report, path, trigger)
            case KafkaTrigger():
                _check_kafka(expressions, report, path, trigger)
            case ObjectTrigger():
                _check_object(report, path, trigger)
            case WebhookTrigger():
                _check_webhook(expressions, report, path, trigger)
        if isinstance(trigger, EventTrigger):
            _check_events(expressions, report, path, trigger)
        _check_with(spec, expressions, report, path, trigger)


# -- each type ---------------------------------------------------------------------------------------------------


def _check_schedule(report: Report, path: Path, trigger: ScheduleTrigger) -> None:
    _check_cron(report, path, trigger)
    _check_zone(report, (*path, "timezone"), trigger.timezone)
    if trigger.interval is not None and (trigger.interval < 1 or trigger.interval % 1):
        report.add("T701", (*path, "interval"), "an interval is a whole number of seconds, at least one")
    if trigger.offset is not None and trigger.offset % 1:
        report.add("T701", (*path, "offset"), "an offset is a whole number of seconds")
    if trigger.offset is not None and trigger.interval is None:
        report.add("T701", (*path, "offset"), "'offset' belongs to `interval`", "cron says its minute itself", key=True)
    elif trigger.offset is not None and trigger.interval is not None and trigger.offset >= trigger.interval:
        report.add("T701", (*path, "offset"), f"'offset' must be less than {format_duration(trigger.interval)}")
    if trigger.catchup_window < _LEAST_CATCHUP:
        report.add("T701", (*path, "catchupWindow"), f"Temporal needs at least {format_duration(_LEAST_CATCHUP)}")


def _check_cron(report: Report, path: Path, trigger: ScheduleTrigger) -> None:
    if trigger.cron == []:
        report.add("T015", (*path, "cron"), "'cron' has no time", "write one: `cron: 0 2 * * *`")
    given = [trigger.cron] if isinstance(trigger.cron, str) else trigger.cron or []
    for index, text in enumerate(given):
        at: Path = (*path, "cron") if isinstance(trigger.cron, str) else (*path, "cron", index)
        try:
            parse_cron(text)
        except CronError as error:
            report.inside("T702", at, text, (error.start, error.stop), str(error), error.hint)


def _check_zone(report: Report, path: Path, name: str) -> None:
    from zoneinfo import ZoneInfo, available_timezones

    try:
        ZoneInfo(name)
    except (OSError, ValueError, KeyError):  # a folder, a path outside the database, or an unknown zone
        hint = did_you_mean(name, available_timezones()) or "write it as in the IANA database: Europe/Paris, UTC"
        report.add("T703", path, f"there is no timezone '{name}'", hint)


def _check_kafka(expressions: Expressions, report: Report, path: Path, trigger: KafkaTrigger) -> None:
    _check_topics(report, (*path, "topics"), trigger.topics)
    _check_dead_letter(report, path, trigger)
    if trigger.dedupe not in ("offset", "event"):
        _check_dedupe(expressions, path, trigger, trigger.dedupe)
    if trigger.dedupe == "event" and trigger.format != "cloudevents":
        hint = "write what tells two events apart, such as `event.data.id`, or remove it"
        report.add(
            "T701", (*path, "dedupe"), f"a record of format {trigger.format} has no id of its own", hint, key=True
        )
    if trigger.batch is not None and trigger.dedupe != "offset":
        hint = "a batch is known by the offset of its first record; drop one of the two"
        by = "its events" if trigger.dedupe == "event" else "an expression"
        report.add("T701", (*path, "dedupe"), f"a batch cannot be deduped by {by}", hint, key=True)
    if trigger.format == "raw" and trigger.schema_ is not None:
        report.add("T701", (*path, "schema"), "raw bytes have no JSON to check", "write `format: json`", key=True)
    if trigger.format == "raw" and trigger.events == "inline":
        hint = "write `events: range` or `events: capture`"
        report.add("T701", (*path, "events"), "raw bytes cannot go inline", hint, key=True)
    if trigger.events == "inline" and trigger.batch is not None and trigger.batch.max_bytes > INLINE_LIMIT:
        limit = format_size(INLINE_LIMIT)
        hint = f"write `batch: {{maxBytes: {limit}}}`, or `events: auto`"
        report.add("T701", (*path, "events"), f"a batch that goes inline has at most {limit}", hint, key=True)
    for key in ("events", "envelope"):
        if key in trigger.model_fields_set and not _uses_events(trigger):
            message = f"'{key}' has no effect: no input gets `{_EVENTS_TEXT}`"
            report.add("T217", (*path, key), message, "remove it", key=True)


def _check_topics(report: Report, path: Path, topics: list[str]) -> None:
    for index, topic in enumerate(topics):
        if not _TOPIC.fullmatch(topic) or topic in (".", ".."):
            hint = "letters, digits, `.`, `_` and `-`; at most 249"
            report.add("T704", (*path, index), f"'{topic}' cannot be a topic", hint)
        elif topic in topics[:index]:
            report.add("T704", (*path, index), f"the topic '{topic}' is there already", "remove one of the two")


def _check_dead_letter(report: Report, path: Path, trigger: KafkaTrigger | ObjectTrigger) -> None:
    if trigger.dead_letter is None:
        return
    here: Path = (*path, "deadLetter", "topic")
    source = trigger if isinstance(trigger, KafkaTrigger) else trigger.kafka
    if source is None:
        report.add("T217", here[:-1], "'deadLetter' is a topic, and this trigger reads none", "remove it", key=True)
        return
    if not _TOPIC.fullmatch(trigger.dead_letter.topic):
        report.add("T704", here, f"'{trigger.dead_letter.topic}' cannot be a topic")
    elif trigger.dead_letter.topic in source.topics:
        report.add("T704", here, "dead letters would come back as events", "give them a topic of their own")


def _check_object(report: Report, path: Path, trigger: ObjectTrigger) -> None:
    _check_dead_letter(report, path, trigger)
    if trigger.kafka is not None:
        _check_topics(report, (*path, "kafka", "topics"), trigger.kafka.topics)
    if trigger.poll is None:
        if "start_from" in trigger.model_fields_set:
            report.add("T217", (*path, "startFrom"), "'startFrom' belongs to `poll`", "remove it", key=True)
        return
    if trigger.poll.uri.partition("://")[0].lower() not in _STORES:
        hint = f"begin with {one_of(f'{each}://' for each in _STORES)}"
        report.add("T705", (*path, "poll", "uri"), f"'{trigger.poll.uri}' names no place to look at", hint)
    elif re.search(r"[*?\[]", trigger.poll.uri):
        hint = "name the folder, and choose in it with `filter`, such as `event.data.size > 0`"
        report.add("T705", (*path, "poll", "uri"), "a prefix has no wildcards", hint)
    if trigger.poll.every < 1:
        report.add("T701", (*path, "poll", "every"), "a look every second is the most")


def _check_webhook(expressions: Expressions, report: Report, path: Path, trigger: WebhookTrigger) -> None:
    if trigger.dedupe not in ("id", "body", "none"):
        _check_dedupe(expressions, path, trigger, trigger.dedupe)
    if trigger.max_body == 0:
        report.add("T015", (*path, "maxBody"), "'maxBody' must be more than nothing")
    if trigger.secret is None:
        if "scheme" in trigger.model_fields_set:
            report.add("T217", (*path, "scheme"), "'scheme' belongs to `secret`", "name the secret", key=True)
        message = f"whoever reaches the port can start runs: '{path[-1]}' has no secret"
        report.add("T604", path, message, "name one that callers sign with: `secret: NAME`", key=True)


# -- events -----------------------------------------------------------------------------------------


def _check_events(expressions: Expressions, report: Report, path: Path, trigger: EventTrigger) -> None:
    site = ExpressionSite((*path, "filter"), frozenset(), _WHEN, scope=_scope(trigger))
    if trigger.filter is not None:
        expressions.condition(site, trigger.filter)
    if trigger.schema_ is not None:
        _check_schema(report, (*path, "schema"), trigger.schema_)


_WHEN = "when an event arrives"


def _scope(trigger: Trigger | EventTrigger) -> Mapping[str, Any]:
    """Return the names that expressions of a trigger can use, with types."""
    about = {"name": Type.STRING, "time": dict(MOMENT)}
    if isinstance(trigger, ScheduleTrigger):
        return {"trigger": about}
    data = _OBJECT if isinstance(trigger, ObjectTrigger) else Type.UNKNOWN
    event = dict.fromkeys(_ATTRIBUTES, Type.STRING) | {"data": data, "extensions": Type.UNKNOWN}
    if isinstance(trigger, KafkaTrigger):
        event["headers"] = Type.UNKNOWN
    return {"trigger": about, "event": event}


def _check_dedupe(expressions: Expressions, path: Path, trigger: Trigger, text: str) -> None:
    scope = {**_scope(trigger), "trigger": {"name": Type.STRING}}
    site = ExpressionSite((*path, "dedupe"), frozenset(), "as the identity of an event", scope=scope)
    expressions.scalar(site, text, {Type.STRING, Type.INT}, "a text or a whole number")


def _check_schema(report: Report, path: Path, schema: Mapping[str, Any]) -> None:
    if find_spec("jsonschema") is None:
        hint = "Install treadle-orchestrator[triggers]."
        raise UsageError("checking `schema` of a trigger needs the package jsonschema", hint)
    try:
        defect = evaluate_within_budget(jobs.schema_defect, json.dumps(schema).encode(), always=not is_small(schema))
    except Unfit as error:
        report.add("T706", path, error.message, error.hint)
        return
    if defect:
        report.add("T706", (*path, *defect[0]), f"this is no JSON Schema: {defect[1]}")
    for below, target in _outward(schema):
        hint = "write what it refers to below `$defs`, and `$ref: '#/$defs/NAME'`"
        report.add("T706", (*path, *below), f"'{target}' is elsewhere, and nothing is fetched", hint)


def _outward(schema: Any, path: Path = ()) -> list[tuple[Path, str]]:
    """Return the `$ref`s that leave the schema."""
    pairs: Any = schema.items() if isinstance(schema, dict) else enumerate(schema) if isinstance(schema, list) else ()
    found: list[tuple[Path, str]] = []
    for key, value in pairs:
        here = (*path, key)
        if key in ("$ref", "$dynamicRef") and isinstance(value, str) and not value.startswith("#"):
            found.append((here, value))
        found += _outward(value, here)
    return found


# -- inputs ------------------------------------------------------------------------------------------------------


def _check_with(spec: Spec, expressions: Expressions, report: Report, path: Path, trigger: Trigger) -> None:
    here: Path = (*path, "with")
    for name, value in trigger.with_.items():
        declared = spec.inputs.get(name)
        if declared is None:
            report.add("T501", (*here, name), *undeclared(name, spec.inputs), key=True)
        else:
            _check_value(expressions, report, (*here, name), trigger, declared, value)
    for name, declared in spec.inputs.items():
        if declared.required and name not in trigger.with_:
            hint = f"write `with: {{{name}: ...}}`"
            report.add("T502", here, f"'{path[-1]}' gives no value to the required input '{name}'", hint, key=True)


def _check_value(
    expressions: Expressions, report: Report, path: Path, trigger: Trigger, declared: Input, value: JsonValue
) -> None:
    if _EVENTS.names in mentioned(value):
        _check_events_input(report, path, trigger, declared, value)
        return
    site = ExpressionSite(path, frozenset(), "when the run is started", scope=_with_scope(trigger))
    before = len(report.found)
    expressions.value(site, value)
    if len(report.found) > before:
        return
    if _only_expression(value) is not None and declared.type in INPUT_TYPES and isinstance(value, str):
        wanted = {INPUT_TYPES[declared.type], *((Type.INT,) if declared.type == "number" else ())}
        expressions.typed(site, value, wanted, WORDS[declared.type])
        return
    try:
        accept(declared, _sample(value))
    except InputError as error:
        if not _unknowable(value):
            report.add("T503", path, f"the input '{path[-1]}' does not fit: {error}", error.hint)


def _with_scope(trigger: Trigger) -> Mapping[str, Any]:
    """Return the names that `with` can use; a batch has no single event, so only `trigger`."""
    scope = _scope(trigger)
    batched = isinstance(trigger, KafkaTrigger) and trigger.batch is not None
    return {"trigger": scope["trigger"]} if batched else scope


_INSTEAD = {
    "schedule": "a schedule has no events",
    "object": 'write `{uri: "${{ event.data.uri }}", format: ...}`',
    "webhook": 'write `{items: ["${{ event.data }}"]}`',
}


def _check_events_input(report: Report, path: Path, trigger: Trigger, declared: Input, value: JsonValue) -> None:
    name = path[-1]
    if not isinstance(trigger, KafkaTrigger):
        hint = _INSTEAD[trigger.type] if declared.type in ("dataset", "list") else "name a part of `event.data`"
        report.add("T106", path, "only Kafka triggers have `trigger.events`", hint)
    elif _only_expression(value) != _EVENTS:
        report.add("T106", path, "events can only be the whole value of an input", f'write `{name}: "{_EVENTS_TEXT}"`')
    elif declared.type != "dataset" and not (declared.type == "list" and trigger.events == "inline"):
        hint = f"declare `{name}: {{type: dataset, required: true}}`"
        hint += ", or write `events: inline`" if declared.type == "list" else ""
        report.add("T503", path, f"events are a dataset, and the input '{name}' is {a(declared.type)}", hint)


def _uses_events(trigger: KafkaTrigger) -> bool:
    return any(_only_expression(value) == _EVENTS for value in trigger.with_.values())


def _only_expression(value: JsonValue) -> Expr | None:
    """Return the expression of a whole-value template; None for any other value."""
    try:
        return whole(value) if isinstance(value, str) else None
    except ExpressionError:
        return None


def _sample(value: JsonValue) -> JsonValue:
    """Return the value with placeholder text for each expression."""
    if isinstance(value, str):
        if OPEN not in value:
            return value
        return "".join(piece if isinstance(piece, str) else "..." for piece in parse_template(value))
    if isinstance(value, dict):
        return {key: _sample(item) for key, item in value.items()}
    return [_sample(item) for item in value] if isinstance(value, list) else value


def _unknowable(value: JsonValue, key: str | int = "") -> bool:
    """Return whether an expression gives a value that need not be text: only the start of a run can check it."""
    if isinstance(value, dict):
        return any(_unknowable(item, name) for name, item in value.items())
    if isinstance(value, list):
        return any(_unknowable(item) for item in value)
    return key not in ("uri", "format") and _only_expression(value) is not None
