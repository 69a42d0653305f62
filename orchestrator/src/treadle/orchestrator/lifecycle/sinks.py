"""The two places that take lifecycle events: a topic of Kafka, and a webhook. Their libraries are imported late."""

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
"""Seconds for the report of a delivery that was waited for."""
_RETRIED = (408, 425, 429)
"""Answers of HTTP below 500 that ask for another try."""


def open_outlet(settings: LifecycleSettings, profile: Profile, home: Home) -> Outlet:
    """Raises UsageError for a connection, a secret or a library that is missing."""
    if settings.kafka is not None:
        connection = kafka_settings(profile.kafka, settings.kafka.connection, home.secret)
        return TopicOutlet(connection, settings.kafka.topic)
    assert settings.webhook is not None
    return WebhookOutlet(settings.webhook.url, home.secret(settings.webhook.secret))


class TopicOutlet:
    """Records in the structured mode of CloudEvents, with the run as key: what is told of one run stays in order.

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
        """What is wrong with the event itself, which the next one may not have."""
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
        """Blocks until the broker has it or gave up, since delivery is only reported while somebody polls: this thread,
        or one that sends another event."""
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
    """POST requests, each one event, signed as Standard Webhooks says; any 2xx means that it was taken."""

    def __init__(self, url: str, secret: str) -> None:
        try:
            import httpx
        except ModuleNotFoundError:
            raise UsageError("lifecycle events to a webhook need httpx", _EXTRA) from None
        standard_keys(secret)  # a wrong one is refused now
        self._url, self._secret = url, secret
        self._foreign = httpx.HTTPError
        self._client = httpx.AsyncClient(timeout=ANSWER, follow_redirects=False, trust_env=False)

    async def send(self, event: Event) -> None:
        body = to_json(event)
        headers = sign_standard(self._secret, message_id(event), time.time(), body)
        headers["content-type"] = CONTENT_TYPE
        try:
            async with asyncio.timeout(ANSWER):  # httpx counts from each byte anew
                answer = await self._client.post(self._url, content=body, headers=headers)
        except (self._foreign, TimeoutError) as error:
            raise Untellable(f"the receiver does not answer: {type(error).__name__}") from error
        if not answer.is_success:
            away = answer.status_code >= 500 or answer.status_code in _RETRIED
            raise Untellable(f"the receiver answers {answer.status_code}", away=away)

    async def close(self) -> None:
        await self._client.aclose()


def message_id(event: Event) -> str:
    """`webhook-id`: the same at each try; without what the event's own id may hold (see signatures)."""
    return "msg_" + hashlib.sha256(f"{event.source}\n{event.id}".encode()).hexdigest()[:40]
