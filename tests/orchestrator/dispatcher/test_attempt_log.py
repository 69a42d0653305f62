"""Logs of attempts are written while their segment runs, also when the store fails at times."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest
from eventually import eventually_async

from treadle.executors.program import Failure, Outcome
from treadle.orchestrator.dispatcher.ledger import attempt_records
from treadle.orchestrator.dispatcher.ledger.attempt_records import AttemptLog, AttemptRecord
from treadle.primitives.errors import FailureClass, StoreError
from treadle.primitives.stores.store import FileStore

PREFIX = "runs/r"


class Moody(FileStore):
    """Refuses a given number of puts."""

    refusals = 0

    def put(self, name: str, data: Any) -> None:
        if self.refusals:
            self.refusals -= 1
            raise StoreError("not now", retryable=True)
        super().put(name, data)


@pytest.fixture
def store(tmp_path: Path) -> Moody:
    return Moody(tmp_path)


def failed(partition: int, size: int = 10) -> Failure:
    return Failure(partition, 1, FailureClass.USER_ERROR, "exception ValueError", traceback="x" * size)


def kept(store: Moody) -> list[int]:
    """Partitions of the records in the store, in their order."""
    lines = [line for info in store.list(f"{PREFIX}/attempts") for line in store.get(info.name).splitlines()]
    return [msgspec.json.decode(line, type=AttemptRecord).partition for line in lines]


async def until(store: Moody, partitions: list[int]) -> None:
    await eventually_async(lambda: kept(store) == partitions)


async def test_errors_are_in_the_store_while_the_segment_runs(store: Moody, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempt_records, "FIRST_WINDOW", 0.01)
    log = AttemptLog(store, PREFIX, "s", "000001")
    log.add(failed(0), "local-0")
    await until(store, [0])
    log.add(failed(1), "local-0")
    log.add(failed(2), "local-1")
    await until(store, [0, 1, 2])
    await log.close()
    assert kept(store) == [0, 1, 2]


async def test_errors_are_written_without_delay_when_their_window_is_full(
    store: Moody, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempt_records, "FIRST_WINDOW", 3600.0)
    log = AttemptLog(store, PREFIX, "s", "000001")
    log.add(failed(0, attempt_records.FULL - 1), "local-0")
    await asyncio.sleep(0)
    log.add(failed(1), "local-0")
    await until(store, [0, 1])
    await log.close()


async def test_a_short_segment_leaves_one_object(store: Moody) -> None:
    log = AttemptLog(store, PREFIX, "s", "000001")
    for partition in range(5):
        log.add(failed(partition), "local-0")
    await log.close()
    assert len(list(store.list(f"{PREFIX}/attempts"))) == 1
    assert kept(store) == [0, 1, 2, 3, 4]


async def test_segment_without_errors_leaves_no_log(store: Moody) -> None:
    log = AttemptLog(store, PREFIX, "s", "000001")
    log.add(Outcome(0, 1, "objects", 1), "local-0")
    await log.close()
    assert not list(store.list(""))


async def test_a_store_that_refuses_for_a_while_loses_nothing(store: Moody, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempt_records, "FIRST_WINDOW", 0.01)
    monkeypatch.setattr(attempt_records, "LONGEST_WINDOW", 0.01)
    store.refusals = 3
    log = AttemptLog(store, PREFIX, "s", "000001")
    for partition in range(5):
        log.add(failed(partition), "local-0")
        await asyncio.sleep(0.01)
    await until(store, [0, 1, 2, 3, 4])
    await log.close()


async def test_store_that_refuses_to_the_end_is_reported(store: Moody) -> None:
    store.refusals = 100
    log = AttemptLog(store, PREFIX, "s", "000001")
    log.add(failed(0), "local-0")
    with pytest.raises(StoreError, match="not now"):
        await log.close()
