"""The rights that a trigger lacks, as reported by the cluster. An authorizer may still decide differently later."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AclOperation  # type: ignore[attr-defined]  # its stubs do not export it

from .reader_settings import ReaderSettings
from .topics import Topics

HINT = """The user of the connection needs:
  READ and DESCRIBE of the topics, READ of the groups treadle.*, WRITE and CREATE of the topics of dead letters."""
_REFUSED = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
}
_GROUP = 2.0
"""Seconds that the coordinator of a group has for an answer."""
_MISSING = KafkaError.UNKNOWN_TOPIC_OR_PART


def lacking(settings: Mapping[str, Any], topics: Topics, reading: ReaderSettings, group: str) -> Iterator[str]:
    """The rights that the trigger needs and the connection's user lacks. Raises KafkaException, BrokerUnreachable."""
    asked = topics.ask({*reading.topics, reading.letters})
    for topic in reading.topics:
        yield from lacks_topic(topic, lambda topic=topic: topics.answer(asked[topic]))  # type: ignore[misc]
    yield from _lacks_group(settings, group, reading.topics[0])
    yield from _lacks_letters(topics, reading.letters, lambda: topics.answer(asked[reading.letters]))


def lacks_topic(topic: str, described: Callable[[], Any]) -> Iterator[str]:
    """Missing rights for a topic to read; also reports a missing topic."""
    yield from _lacks(f"read the topic {topic!r}", AclOperation.READ, described, f"the topic {topic!r} does not exist")


def _lacks_group(settings: Mapping[str, Any], group: str, topic: str) -> Iterator[str]:
    """Check the rights for a group with a consumer that does not join. librdkafka's administrative requests for groups
    abort the process when a broker comes back (librdkafka issue 4605)."""
    consumer = Consumer({**settings, "group.id": group, "log_level": 0})
    try:
        consumer.committed([TopicPartition(topic, 0)], timeout=_GROUP)
    except KafkaException:  # the call reports only a timeout, the event has the cause
        event = consumer.poll(0.1)
        error = None if event is None else event.error()
        if error is not None and error.code() in _REFUSED:
            yield f"the user may not use the consumer group {group!r}"
    finally:
        consumer.close()


def _lacks_letters(topics: Topics, topic: str, described: Callable[[], Any]) -> Iterator[str]:
    for problem in _lacks(f"write dead letters to the topic {topic!r}", AclOperation.WRITE, described, "missing"):
        if problem != "missing":
            yield problem
            continue
        try:
            topics.create(topic, only_check=True)
        except KafkaException as error:
            yield f"the topic {topic!r} for dead letters cannot be made: {error.args[0].str()}"


def _lacks(what: str, operation: Any, described: Callable[[], Any], missing: str = "") -> Iterator[str]:
    try:
        found = described()
    except KafkaException as error:
        code = error.args[0].code()
        if code in _REFUSED:
            yield f"the user may not {what}"
        elif code == _MISSING and missing:
            yield missing
        else:
            raise
        return
    if found.authorized_operations is not None and operation not in found.authorized_operations:
        yield f"the user may not {what}"
