"""Differences between two versions, as text and data. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Literal

from msgspec import Struct

from treadle.dsl.triggers import KafkaTrigger, ObjectTrigger, ScheduleTrigger, Trigger, WebhookTrigger
from treadle.dsl.units import format_duration

from .deployment import Deployment

Did = Literal["new", "changed", "unchanged", "removed"]


class TriggerChange(Struct, frozen=True):
    """The change of one trigger by a deployment."""

    trigger: str
    type: str
    about: str
    """Its source of events."""
    did: Did


def trigger_changes(workflow: str, before: Mapping[str, Trigger], after: Mapping[str, Trigger]) -> list[TriggerChange]:
    """The changes, sorted by trigger name."""
    known = {**before, **after}
    return [
        TriggerChange(name, one.type, listens_to(workflow, name, one), _did(before.get(name), after.get(name)))
        for name, one in sorted(known.items())
    ]


def _did(before: Trigger | None, after: Trigger | None) -> Did:
    if before is None:
        return "new"
    if after is None:
        return "removed"
    return "unchanged" if before == after else "changed"


def listens_to(workflow: str, name: str, trigger: Trigger) -> str:
    """The source of events in a few words, such as `orders.v1 of prod_kafka` or `0 2 * * * Europe/Paris`."""
    match trigger:
        case KafkaTrigger():
            return f"{', '.join(trigger.topics)} of {trigger.connection}"
        case ScheduleTrigger():
            crons = [trigger.cron] if isinstance(trigger.cron, str) else trigger.cron or []
            ticks = ", ".join(crons) or f"every {format_duration(trigger.interval or 0)}"
            return f"{ticks} {trigger.timezone}"
        case WebhookTrigger():
            return f"POST to /hooks/{workflow}/{name}"
        case ObjectTrigger(kafka=notifications) if notifications is not None:
            return f"notifications in {', '.join(notifications.topics)} of {notifications.connection}"
        case ObjectTrigger(poll=poll) if poll is not None:
            return f"{poll.uri} every {format_duration(poll.every)}"
    return f"notifications by POST to /hooks/{workflow}/{name}"


def differences(before: Deployment | None, after: Deployment) -> Iterator[str]:
    """Lines of a unified diff of the normalised documents as YAML, and a line for changes of code, executor or
    folder."""
    import yaml

    def lines(one: Deployment | None) -> list[str]:
        return yaml.safe_dump(one.document, sort_keys=False, allow_unicode=True).splitlines() if one else []

    old = before.name if before else "nothing"
    yield from difflib.unified_diff(lines(before), lines(after), old, "the file", n=3, lineterm="")
    words = {"bundle": "the code", "executor": "the default executor", "base": "the folder of relative URIs"}
    for field, what in words.items():
        if before is not None and getattr(before, field) != getattr(after, field):
            shown = "" if field == "bundle" else f": {getattr(before, field)} -> {getattr(after, field)}"
            yield f"{what} changed{shown}"
