"""Facts about topics, asked of the cluster: UUIDs, ends, policies."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its stubs do not export what its pages name
    AdminClient,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from treadle.executors.runtime.events import topic_uuid

from .happenings import Partition

_log = logging.getLogger("treadle.triggers")
ANSWER = 10.0
"""Seconds that the cluster has for an answer."""


class Topics:
    """Every method raises KafkaException."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._admin = AdminClient(dict(settings), logger=_log)

    def ids(self, topics: Collection[str]) -> dict[str, str]:
        """Topic -> its UUID; a topic that does not exist is left out."""
        return {topic: found[0].topic_id for topic, found in self.partitions(topics).items() if found}

    def partitions(self, topics: Collection[str]) -> dict[str, list[Partition]]:
        """Topic -> its partitions; a topic that does not exist is left out."""
        if not topics:
            return {}
        found: dict[str, list[Partition]] = {}
        asked = self._admin.describe_topics(TopicCollection(list(topics)), request_timeout=ANSWER)
        for topic, answer in asked.items():
            try:
                described = answer.result()
            except KafkaException as error:
                if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                    continue
                raise
            uuid = topic_uuid(described.topic_id)
            found[topic] = [Partition(topic, uuid, one.id) for one in described.partitions]
        return found

    def offsets(self, partitions: Sequence[Partition], end: bool) -> dict[Partition, int]:
        """The offset of the next record (`end`), or of the first one there is."""
        return self._offsets(partitions, OffsetSpec.latest() if end else OffsetSpec.earliest())  # type: ignore[no-untyped-call]

    def offsets_at(self, partitions: Sequence[Partition], milliseconds: int) -> dict[Partition, int]:
        """The offset of the first record of that time or later; -1: there is none."""
        return self._offsets(partitions, OffsetSpec.for_timestamp(milliseconds))

    def _offsets(self, partitions: Sequence[Partition], spec: Any) -> dict[Partition, int]:
        if not partitions:
            return {}
        wanted = {TopicPartition(one.topic, one.number): spec for one in partitions}
        asked = self._admin.list_offsets(wanted, request_timeout=ANSWER)
        answers = {(at.topic, at.partition): answer.result().offset for at, answer in asked.items()}
        return {one: answers[one.topic, one.number] for one in partitions}

    def policy(self, topic: str) -> dict[str, str]:
        """The topic's settings: `cleanup.policy`, `retention.ms`, ..."""
        resource = ConfigResource(ResourceType.TOPIC, topic)
        answer = self._admin.describe_configs([resource], request_timeout=ANSWER)[resource].result()
        return {name: entry.value for name, entry in answer.items()}

    def create(self, topic: str) -> None:
        """Make a topic of one partition with the cluster's defaults, unless there is one."""
        try:
            self._admin.create_topics([NewTopic(topic, 1)], request_timeout=ANSWER)[topic].result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
