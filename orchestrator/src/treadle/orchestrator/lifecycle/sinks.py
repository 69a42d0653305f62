"""The two destinations of lifecycle events: a Kafka topic and a webhook. Their libraries are imported late."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import queue
import time
from collections.abc import Mapping
from typing import Any

from treadle.primitives.errors import UsageError
from treadle.primitives.events import Event
from treadle.primitives.events.signatures import sign_standard, standard_keys

from ..environment.home import Home
from ..environment.kafka_connections import kafka_settings
from ..environment.profile import LifecycleSettings, Profile
from .delivery import ANSWER, Outlet, Untellable
from .events import CONTENT_TYPE, to_json

_log = logging.getLogger("treadle.lifecycle")
_EXTRA = "pip install 'treadle-orchestrator[triggers]'"
_REPORT = 1.0
"""Seconds to wait for the report of a flushed delivery."""
_RETRIED = (408, 425, 429)
"""HTTP status codes below 500 that allow another try."""


def open_outlet(settings: LifecycleSettings, profile: Profile, home: Home) -> Outlet:
    """The destination in the profile. Raises UsageError when a connection, a secret or a library is missing."""
    if settings.kafka is not None:
        connection = kafka_settings(profile.kafka, settings.kafka.connection, home.secret)
        return TopicOutlet(connection, settings.kafka.topic)
    assert settings.webhook is not None
    return WebhookOutlet(settings.webhook.url, home.secret(settings.webhook.secret))


class TopicOutlet:
    """Records in the structured mode of CloudEvents. The key is the run, so the events of one run stay in order.

    https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/bindings/kafka-protocol-binding.md#33-structured-content-mode
    """

    def __init__(self, connection: Mapping[str, Any], topic: str) -> None:
        try:
            from confluent_kafka import KafkaError, KafkaException, Producer
        except ModuleNotFoundError:
            raise UsageError("lifecycle events in a topic need confluent-kafka", _EXTRA) from None
        self._topic = topic
        self._foreign = KafkaException
        self._never = (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_RECORD)
        """Errors of the event itself. Other events may succeed."""
        limits = {"message.timeout.ms": int(ANSWER * 1000), "enable.idempotence": True, "linger.ms": 0}
        try:
            self._producer = Producer({"allow.auto.create.topics": False, **connection, **limits}, logger=_log)
        except KafkaException as error:
            raise UsageError(f"the Kafka connection is refused: {error}", "Mend the profile.") from error

    async def send(self, event: Event) -> None:
        await asyncio.to_thread(self._send, event)

    async def close(self) -> None:
        await asyncio.to_thread(self._producer.flush, ANSWER)
        await asyncio.to_thread(self._producer.close)

    def _send(self, event: Event) -> None:
        """Blocks until the broker has accepted or refused the event.

        Delivery is reported only while a thread polls: this one, or another that sends an event.
        """
        said: queue.SimpleQueue[Any] = queue.SimpleQueue()
        about: dict[str, Any] = {"key": (event.subject or "").encode(), "headers": [("content-type", CONTENT_TYPE)]}
        try:
            self._producer.produce(self._topic, to_json(event), on_delivery=lambda error, _: said.put(error), **about)
        except self._foreign as error:
            raise self._untellable(error.args[0]) from error
        except BufferError as error:
            raise Untellable(f"topic {self._topic}: {error}") from error
        self._producer.flush(ANSWER + 1)
        try:
            wrong = said.get(timeout=_REPORT)
        except queue.Empty:
            raise Untellable(f"topic {self._topic}: nobody says whether it is there") from None
        if wrong is not None:
            raise self._untellable(wrong)

    def _untellable(self, error: Any) -> Untellable:
        return Untellable(f"topic {self._topic}: {error.str()}", away=error.code() not in self._never)


class WebhookOutlet:
    """POST requests with one event each, signed by Standard Webhooks. Any 2xx accepts the event."""

    def __init__(self, url: str, secret: str) -> None:
        try:
            import httpx
        except ModuleNotFoundError:
            raise UsageError("lifecycle events to a webhook need httpx", _EXTRA) from None
        standard_keys(secret)  # refuses a malformed secret now
        self._url, self._secret = url, secret
        self._foreign = httpx.HTTPError
        self._client = httpx.AsyncClient(timeout=ANSWER, follow_redirects=False, trust_env=False)

    async def send(self, event: Event) -> None:
        body = to_json(event)
        headers = sign_standard(self._secret, message_id(event), time.time(), body)
        headers["content-type"] = CONTENT_TYPE
        try:
            async with asyncio.timeout(ANSWER):  # the limit of httpx restarts with each byte
                answer = await self._client.post(self._url, content=body, headers=headers)
        except (self._foreign, TimeoutError) as error:
            raise Untellable(f"the receiver does not answer: {type(error).__name__}") from error
        if not answer.is_success:
            away = answer.status_code >= 500 or answer.status_code in _RETRIED
            raise Untellable(f"the receiver answers {answer.status_code}", away=away)

    async def close(self) -> None:
        await self._client.aclose()


def message_id(event: Event) -> str:
    """The `webhook-id`: the same at each try. A hash, since the event's own id may hold other characters (see
    signatures)."""
    return "msg_" + hashlib.sha256(f"{event.source}\n{event.id}".encode()).hexdigest()[:40]
