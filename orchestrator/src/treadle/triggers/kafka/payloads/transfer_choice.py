"""Chooses how events are passed to the run that they start. Pure.

Queries a broker for the retention of a topic.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct

from treadle.primitives.errors import UsageError

INLINE_BYTES = 64 * 2**10
"""Maximum bytes of events in a run's inputs, unless the trigger requires more. Inputs are read again with every view of
the run."""
NEEDED = 86_400.0
"""Seconds for which records must remain, so that a run that waits or is resumed can read them."""

Way = Literal["inline", "range", "capture"]


class Topic(Struct, frozen=True):
    """How long a topic keeps its records."""

    seconds: float | None
    """None: forever."""
    bytes: int | None = None
    """Maximum bytes of a partition; None: no limit."""
    compacted: bool = False
    """A record is deleted when a newer one with its key arrives."""


def choose(asked: Literal["auto"] | Way, size: int | None, age: float, topic: Topic | None) -> Way:
    """The way of passing a batch; a range only if the topic still has the records when the run reads them.

    `size` is the length of its items as JSON, None when inputs do not accept them; `age` is that of its oldest record,
    in seconds; `topic` None: its retention is unknown. Raises UsageError for events that cannot be inline.
    """
    if asked == "inline" and size is None:
        text = "events with bytes or with whole numbers of more than 64 bits cannot be inline"
        raise UsageError(text, "Write `events: range` or `events: capture`.")
    if asked != "auto":
        return asked
    if size is not None and size <= INLINE_BYTES:
        return "inline"
    if topic is None or topic.compacted or topic.bytes is not None:
        return "capture"
    return "range" if topic.seconds is None or topic.seconds - age >= NEEDED else "capture"


def ask_topic(settings: Mapping[str, Any], topic: str) -> Topic | None:
    """The retention from the topic's settings; None when the broker rejects the request or does not answer in ten
    seconds.

    `settings` are librdkafka's, of the connection.
    """
    from confluent_kafka import KafkaException

    from ..cluster_interface import BrokerUnreachable
    from ..topics import Topics

    try:
        return topic_of(Topics(settings).policy(topic))
    except (KafkaException, BrokerUnreachable):
        return None


def topic_of(settings: Mapping[str, str]) -> Topic | None:
    """The retention, from a topic's settings under Kafka's names. None if they do not contain it."""
    try:
        milliseconds, size = int(settings["retention.ms"]), int(settings["retention.bytes"])
        policy = settings["cleanup.policy"].split(",")
    except (KeyError, ValueError):
        return None
    deletes = "delete" in policy
    return Topic(
        milliseconds / 1000 if deletes and milliseconds >= 0 else None,
        size if deletes and size >= 0 else None,
        "compact" in policy,
    )
