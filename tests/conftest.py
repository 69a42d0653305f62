"""Fixtures for all tests: the order of files, time limits, and servers, each started for the first test that needs
it."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings
from properties.profiles import examples
from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from kafka import Broker, Mock

TESTS = Path(__file__).parent
# No deadline: a busy machine must not fail a test.
settings.register_profile("patient", examples(100), suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

FIRST = ["chaos", "triggers", "e2e", "properties", "bench", "orchestrator", "executors", "examples", "emulators"]
FIRST += ["listeners", "deployment", "budgets", "test_surface.py", "primitives"]
"""Folders of long files, the longest first. The last files to start determine the end."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In several processes, each of which takes one file at a time (Makefile), the short files of `dsl` come last."""
    if hasattr(config, "workerinput"):
        place = {folder: number for number, folder in enumerate(FIRST)}
        items.sort(key=lambda item: place.get(item.path.relative_to(TESTS).parts[0], len(place)))


def pytest_collection_finish() -> None:
    """Half a million objects of modules and tests stay until the end: the collector need not look at them again."""
    gc.collect()
    gc.freeze()


class Shares(LoadFileScheduling):  # type: ignore[misc]
    """The unit of work for a process: a file; all of `triggers`, so that its broker, Temporal and driver start once; a
    single test of `chaos`."""

    def _split_scope(self, nodeid: str) -> str:
        folder = nodeid.split("/")[1]
        return {"triggers": folder, "chaos": nodeid}.get(folder, nodeid.split("::")[0])


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Shares | None:
    return Shares(config, log) if config.option.dist == "loadfile" else None


@pytest.fixture(scope="session")
def kafka() -> Iterator[Mock]:
    """A Kafka broker: the real one, or librdkafka's mock where that cannot run."""
    from kafka import broker, mock_broker, unsupported

    with mock_broker() if unsupported() else broker() as running:
        yield running


@pytest.fixture
def real_kafka(kafka: Mock) -> Broker:
    """The real broker. A test that stops it must restart it."""
    from kafka import Broker, unsupported

    if not isinstance(kafka, Broker):
        pytest.skip(unsupported())
    return kafka
