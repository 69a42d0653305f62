"""Asking a broker how long a topic keeps its records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .choice import Topic

_TIMEOUT = 10.0


def ask_topic(settings: Mapping[str, Any], topic: str) -> Topic | None:
    """What the topic's settings say; None when the broker refuses or does not answer in ten seconds.

    `settings` are librdkafka's, of the connection.
    """
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.admin._config import ConfigResource
    from confluent_kafka.admin._resource import ResourceType

    resource = ConfigResource(ResourceType.TOPIC, topic)
    admin = AdminClient(dict(settings))  # forgets what it was asked when it is forgotten itself
    try:
        asked = admin.describe_configs([resource], request_timeout=_TIMEOUT)
        found = {name: entry.value for name, entry in asked[resource].result(_TIMEOUT).items()}
    except (KafkaException, TimeoutError):
        return None
    return topic_of(found)


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
