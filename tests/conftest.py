"""Servers that tests of several folders share, each started for the first test that asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from kafka import Broker, Mock


@pytest.fixture(scope="session")
def kafka() -> Iterator[Mock]:
    """A Kafka broker: the real one, or librdkafka's imitation where that cannot run."""
    from kafka import broker, mock_broker, unsupported

    with mock_broker() if unsupported() else broker() as running:
        yield running


@pytest.fixture
def real_kafka(kafka: Mock) -> Broker:
    """The real broker. A test that stops it has to start it again."""
    from kafka import Broker, unsupported

    if not isinstance(kafka, Broker):
        pytest.skip(unsupported())
    return kafka
