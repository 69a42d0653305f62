"""Queries about topics and groups to the cluster: UUIDs, ends, policies, rights."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future, wait
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its stubs omit documented names
    AdminClient,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
    TopicDescription,
)

from treadle.executors.runtime.event_source import topic_uuid

from .connectivity import Connectivity
from .machine_events import KafkaPartition

T = TypeVar("T")
ANSWER = 10.0
"""Seconds that the cluster has for an answer."""
HOPELESS = 2.0
"""Seconds after which waiting ends if no broker can be reached for a known cause."""

_ELECTING = (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE)
"""The partition gets a leader, or the client does not know it yet: soon after a topic is made."""
_AGAIN = 0.1
"""Seconds until the next question meanwhile."""


class Topics:
    """Every method raises KafkaException, and BrokerUnreachable with the cause when no broker can be reached.

    `connectivity` is shared by the clients of a connection.
    """

    def __init__(self, settings: Mapping[str, Any], connectivity: Connectivity | None = None) -> None:
        self.connectivity = connectivity or Connectivity(str(settings.get("bootstrap.servers", "")))
        about = {**settings, "error_cb": self.connectivity.error}
        self._admin = AdminClient(about, logger=self.connectivity)

    def answer(self, asked: Future[T], seconds: float = ANSWER) -> T:
        """Wait for the answer."""
        begun = time.monotonic()
        while not asked.done() and not wait([asked], min(seconds, 0.1)).done:
            self._admin.poll(0)
            waited = time.monotonic() - begun
            if waited > seconds or (waited > HOPELESS and self.connectivity.down):
                raise self.connectivity.reason()
        return self._result(asked)

    def _result(self, asked: Future[T]) -> T:
        try:
            found = asked.result()
        except KafkaException as error:
            self._admin.poll(0)
            if unreachable := self.connectivity.unreachable(error.args[0]):
                raise unreachable from error
            self.connectivity.answered()
            raise
        self.connectivity.answered()
        return found

    def poll(self) -> None:
        """Process events of connections."""
        self._admin.poll(0)

    def ids(self, topics: Collection[str]) -> dict[str, str]:
        """Topic -> its UUID; missing topics are omitted."""
        return {topic: found[0].topic_id for topic, found in self.partitions(topics).items() if found}

    def partitions(self, topics: Collection[str]) -> dict[str, list[KafkaPartition]]:
        """Topic -> its partitions; missing topics are omitted."""
        if not topics:
            return {}
        found: dict[str, list[KafkaPartition]] = {}
        for topic, asked in self.ask(topics).items():
            try:
                described = self.answer(asked)
            except KafkaException as error:
                if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                    continue
                raise
            uuid = topic_uuid(described.topic_id)
            found[topic] = [KafkaPartition(topic, uuid, one.id) for one in described.partitions]
        return found

    def ask(self, topics: Collection[str]) -> dict[str, Future[TopicDescription]]:
        """Request the topics' descriptions and the user's rights; does not block."""
        names = TopicCollection(list(topics))
        return self._admin.describe_topics(names, include_authorized_operations=True, request_timeout=ANSWER)

    def offsets(self, partitions: Sequence[KafkaPartition], end: bool) -> dict[KafkaPartition, int]:
        """The offset of the next record (`end`), or of the first existing one."""
        return self._offsets(partitions, OffsetSpec.latest() if end else OffsetSpec.earliest())  # type: ignore[no-untyped-call]

    def offsets_at(self, partitions: Sequence[KafkaPartition], milliseconds: int) -> dict[KafkaPartition, int]:
        """The offset of the first record at or after that time; -1: there is none."""
        return self._offsets(partitions, OffsetSpec.for_timestamp(milliseconds))

    def _offsets(self, partitions: Sequence[KafkaPartition], spec: Any) -> dict[KafkaPartition, int]:
        until = time.monotonic() + ANSWER
        while True:
            try:
                return self._listed(partitions, spec) if partitions else {}
            except KafkaException as error:
                if error.args[0].code() not in _ELECTING or time.monotonic() > until:
                    raise
            time.sleep(_AGAIN)

    def _listed(self, partitions: Sequence[KafkaPartition], spec: Any) -> dict[KafkaPartition, int]:
        wanted = {TopicPartition(one.topic, one.number): spec for one in partitions}
        asked = self._admin.list_offsets(wanted, request_timeout=ANSWER)
        answers = {(at.topic, at.partition): self.answer(answer).offset for at, answer in asked.items()}
        return {one: answers[one.topic, one.number] for one in partitions}

    def policy(self, topic: str) -> dict[str, str]:
        """The topic's settings: `cleanup.policy`, `retention.ms`, ..."""
        resource = ConfigResource(ResourceType.TOPIC, topic)
        found = self.answer(self._admin.describe_configs([resource], request_timeout=ANSWER)[resource])
        return {name: entry.value for name, entry in found.items()}

    def create(self, topic: str, *, only_check: bool = False) -> None:
        """Create a topic of one partition with the cluster's defaults, unless it exists; or only check whether that
        works."""
        wanted = [NewTopic(topic, 1)]
        try:
            self.answer(self._admin.create_topics(wanted, validate_only=only_check, request_timeout=ANSWER)[topic])
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise

    def size(self) -> tuple[int, int]:
        """The number of brokers and topics of the cluster."""
        brokers = len(self.answer(self._admin.describe_cluster(request_timeout=ANSWER)).nodes)
        return brokers, len(self._admin.list_topics(timeout=ANSWER).topics)
