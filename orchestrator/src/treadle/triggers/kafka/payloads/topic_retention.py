"""Asking a broker how long a topic keeps its records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .transfer_choice import Topic


def ask_topic(settings: Mapping[str, Any], topic: str) -> Topic | None:
    """What the topic's settings say; None when the broker refuses or does not answer in ten seconds.

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
    """From the settings of a topic, by Kafka's names; None when they say nothing about retention."""
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
