"""The call log: one order for all clients, and no call lost or repeated by errors of the store."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from treadle.orchestrator.run_store.call_log import CallLog, Cancelled
from treadle.orchestrator.run_store.run_files import RunFiles
from treadle.primitives.errors import CorruptError, StoreError
from treadle.primitives.stores.store import Store

KEY = b"k" * 32


def files(folder: Path, key: bytes = KEY) -> RunFiles:
    return RunFiles(Store.open(f"file://{folder}"), "calls-1", key)


def record(number: int) -> Cancelled:
    return Cancelled(str(number), 0)


def failing_at(method: Callable[..., Any], call: int, *, after: bool) -> Callable[..., Any]:
    """The method of a store, whose n-th call fails before or after it takes effect."""
    calls = [0]

    def wrapped(*arguments: Any) -> Any:
        calls[0] += 1
        if calls[0] == call and not after:
            raise StoreError("away", "Try again.", retryable=True)
        found = method(*arguments)
        if calls[0] == call:
            raise StoreError("away", "Try again.", retryable=True)
        return found

    return wrapped


def test_writers_see_one_chain_in_the_same_order(tmp_path: Path) -> None:
    logs = [CallLog(files(tmp_path), f"writer-{number}") for number in range(4)]

    def write(number: int) -> list[Any]:
        log = logs[number]
        return [one for turn in range(10) for one in log.write([record(100 * number + turn)])] + log.read()

    with ThreadPoolExecutor(4) as pool:
        seen = list(pool.map(write, range(4)))
    whole = CallLog(files(tmp_path)).read()
    keys = sorted(int(one.key) for one in whole if isinstance(one, Cancelled))
    assert keys == sorted(100 * n + t for n in range(4) for t in range(10))
    for found in seen:
        assert found == whole[: len(found)]


@pytest.mark.parametrize("after", [False, True])
def test_write_that_failed_is_repeated_without_a_second_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    here = files(tmp_path)
    log = CallLog(here, "writer")
    monkeypatch.setattr(here.store, "create", failing_at(here.store.create, 1, after=after))
    with pytest.raises(StoreError):
        log.write([record(1)])
    assert log.write([record(1)]) == [record(1)]
    assert CallLog(here).read() == [record(1)]


def test_error_while_reading_loses_no_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = files(tmp_path)
    writer = CallLog(here, "writer")
    for number in range(3):
        writer.write([record(number)])
    log = CallLog(here)
    monkeypatch.setattr(here.store, "get", failing_at(here.store.get, 2, after=False))
    with pytest.raises(StoreError):
        log.read()
    assert log.read() == [record(0), record(1), record(2)]


def test_call_written_without_the_key_is_refused(tmp_path: Path) -> None:
    CallLog(files(tmp_path, b"x" * 32), "stranger").write([record(1)])
    with pytest.raises(CorruptError):
        CallLog(files(tmp_path)).read()
