"""Ids of triggered runs: they depend on the event's identity alone, so that Temporal can reject a second start.

    orders.live.<topic UUID>.<partition>.<offset>     a record; for a batch, its first matching record
    orders.live.<32 hex digits>                       a hash, if the identity may be private or long

Ids are stored in plain text. Therefore keys, CloudEvent ids and bodies enter them as a hash only. A topic is named by
its UUID, because a topic created again restarts its offsets at 0. No id contains a version: a workflow that is deployed
again starts no run for an event that has one.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from treadle.primitives.events import Event, Record

_PREFIX = 100
"""Maximum characters; a run id has at most 200."""


def record_run(workflow: str, trigger: str, record: Record) -> str:
    """The run of a record, or of the batch that begins with it."""
    return f"{run_prefix(workflow, trigger)}{record.topic_id}.{record.partition}.{record.offset}"


def event_run(workflow: str, trigger: str, event: Event) -> str:
    """The run of a CloudEvent, however often its producer sends it: `source` and `id` are unique together."""
    return hashed_run(workflow, trigger, event.source, event.id)


def hashed_run(workflow: str, trigger: str, *identity: Any) -> str:
    """The run for an identity given by JSON values."""
    text = msgspec.json.encode(identity, order="sorted")
    return f"{run_prefix(workflow, trigger)}{hashlib.sha256(text).hexdigest()[:32]}"


def replay_run(run: str, number: int) -> str:
    """The run of a replayed dead letter; `number` counts from 1."""
    return f"{run}.r{number}"


def label(workflow: str, trigger: str) -> str:
    """The value of the search attribute `TreadleTrigger` for the trigger's runs."""
    return f"{workflow}.{trigger}"


def run_prefix(workflow: str, trigger: str) -> str:
    """The prefix that the ids of the trigger's runs have, and no others."""
    text = label(workflow, trigger)
    if len(text) > _PREFIX:
        text = f"{text[: _PREFIX - 17]}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    return f"{text}."
