"""Events that a task reads while it processes them. For a real broker see `tests/triggers/test_payload_ranges.py`."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import confluent_kafka
import pytest

from treadle.executors.program import EventSplit, connection_secret
from treadle.executors.runtime import event_source
from treadle.primitives.errors import StoreError
from treadle.primitives.stores.store import Store


class Clock:
    now = 0.0

    def monotonic(self) -> float:
        return self.now


class Message:
    def __init__(self, offset: int) -> None:
        self._offset = offset

    def error(self) -> None:
        return None

    def offset(self) -> int:
        return self._offset

    def partition(self) -> int:
        return 0

    def topic(self) -> str:
        return "orders"

    def timestamp(self) -> tuple[int, int]:
        return 1, 1000

    def headers(self) -> None:
        return None

    def key(self) -> None:
        return None

    def value(self) -> bytes:
        return json.dumps(self._offset).encode()


class Broker:
    """Returns one message at a time. Once there is none, `silent` seconds pass with each poll."""

    def __init__(self, clock: Clock, messages: int) -> None:
        self._clock, self._left = clock, [Message(offset) for offset in range(messages)]

    def __call__(self, settings: dict[str, Any]) -> Broker:
        return self

    def assign(self, _: Any) -> None: ...

    def poll(self, seconds: float) -> Message | None:
        if self._left:
            return self._left.pop(0)
        self._clock.now += seconds
        return None

    def consume(self, _: int, timeout: float) -> list[Message]:
        return []

    def close(self) -> None: ...


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(event_source, "time", SimpleNamespace(monotonic=clock.monotonic))
    monkeypatch.setattr(event_source, "_check_topic", lambda settings, split: None)
    monkeypatch.setattr(event_source, "_BATCH", 2)
    return clock


def read(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(confluent_kafka, "Consumer", broker)
    reader = event_source.EventReader(Store.open("memory://"), "run", b"k" * 32, {connection_secret("broker"): "{}"})
    return reader.read(EventSplit("broker", "orders", "uuid", 0, 0, (5,), "json"))


def test_a_function_that_takes_long_over_its_events_does_not_make_the_broker_silent(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for some in read(Broker(clock, 5), monkeypatch):
        found += some
        clock.now += 3600
    assert found == [0, 1, 2, 3, 4]


def test_silent_broker_is_reported(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StoreError, match="does not answer"):
        list(read(Broker(clock, 3), monkeypatch))
