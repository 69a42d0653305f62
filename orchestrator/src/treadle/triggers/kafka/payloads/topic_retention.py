"""Queries a broker for the retention of a topic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .transfer_choice import Topic


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
