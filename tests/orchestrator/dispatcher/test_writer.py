"""The background half of a ledger."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from pathlib import Path
from typing import Any

import pytest
from eventually import PATIENCE

from treadle.orchestrator.dispatcher.ledger.group_commit import LedgerWriter
from treadle.orchestrator.dispatcher.ledger.ledger import Closed, Fenced, Ledger
from treadle.orchestrator.dispatcher.segments.execute_segment import writing
from treadle.primitives.stores.store import Store

KEY = b"k" * 32


async def test_waiters_of_a_refused_write_receive_the_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger(Store.open(f"file://{tmp_path}"), "runs/r/segments/s", KEY)
    begun, go_on = threading.Event(), threading.Event()

    def refused() -> None:
        begun.set()
        go_on.wait(10)
        raise Fenced("s", 2)

    monkeypatch.setattr(ledger, "flush", refused)
    heard: list[BaseException] = []
    writer = LedgerWriter(ledger, heard.append)
    writer.append(Closed("s"))
    early = asyncio.ensure_future(writer.synced())
    await asyncio.to_thread(begun.wait, 10)
    late = asyncio.ensure_future(writer.synced())
    await asyncio.sleep(0)
    go_on.set()
    for waiting in (early, late):
        with pytest.raises(Fenced):
            await asyncio.wait_for(waiting, 10)
    assert len(heard) == 1
    with pytest.raises(Fenced):
        writer.append(Closed("s"))
    await writer.close()


async def test_close_ends_when_a_wait_during_the_last_write_was_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cancelled wait asks for one more write. `close` ends the writer just as it begins that write."""
    ledger = Ledger(Store.open(f"file://{tmp_path}"), "runs/r/segments/s", KEY)
    begun, go_on, flush = threading.Event(), threading.Event(), ledger.flush

    def slow() -> None:
        flush()
        begun.set()
        go_on.wait(60)

    monkeypatch.setattr(ledger, "flush", slow)
    writer = LedgerWriter(ledger, lambda _: None)
    writer.append(Closed("s"))

    async def end() -> None:
        await writer.synced()
        await writer.close()

    ending = asyncio.create_task(end())
    await asyncio.to_thread(begun.wait, 60)
    late = asyncio.create_task(writer.synced())
    await asyncio.sleep(0)
    late.cancel()
    go_on.set()
    done, _ = await asyncio.wait({ending}, timeout=PATIENCE)
    assert done, "close waits for ever"


async def test_nothing_goes_on_writing_when_the_end_is_broken_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger(Store.open(f"file://{tmp_path}"), "runs/r/segments/s", KEY)
    begun, go_on = threading.Event(), threading.Event()

    def slow() -> None:
        begun.set()
        go_on.wait(60)

    monkeypatch.setattr(ledger, "flush", slow)
    writer = LedgerWriter(ledger, lambda _: None)
    writer.append(Closed("s"))
    closing = asyncio.ensure_future(writer.close())
    try:
        await asyncio.to_thread(begun.wait, 60)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert writer._task.done()  # private: the end of the task has no other sign
    finally:
        go_on.set()


async def test_a_loop_of_many_iterations_keeps_no_segment_that_is_over(tmp_path: Path) -> None:
    class Segment:
        def stop_with(self, _: BaseException) -> None:
            pass

    ledger = Ledger(Store.open(f"file://{tmp_path}"), "runs/r/segments/s", KEY)
    async with writing(ledger) as (_, watch):
        segment: Any = Segment()
        watch(segment)
        over = weakref.ref(segment)
        del segment
        gc.collect()
        assert over() is None
