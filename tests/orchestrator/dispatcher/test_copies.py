"""Blocks are copied to the store while their segment runs, and no longer."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from orchestrator.broken_runs import Counted
from orchestrator.record_histories import mapped, spec

from treadle.client.testing.harness import Harness
from treadle.client.testing.strategies import Case
from treadle.executors.program import Outcome
from treadle.orchestrator.dispatcher.blocks.write_behind import AT_ONCE
from treadle.orchestrator.dispatcher.ledger.ledger import Fenced, Ledger
from treadle.orchestrator.dispatcher.tasks import arguments
from treadle.primitives.blocks import Blocks
from treadle.primitives.encoding.references import BlockRef
from treadle.primitives.stores.store import Store

PARTITIONS = 2 * AT_ONCE
DOCUMENT = spec(
    only=mapped({"range": PARTITIONS, "partitions": PARTITIONS}, exchange="direct", durability="segment"),
    end=mapped("only", timeout="100s"),
)


async def copied() -> None:
    """Wait until all copies have ended."""
    copying = [task for task in asyncio.all_tasks() if "Copies" in str(task.get_coro())]
    await asyncio.gather(*copying, return_exceptions=True)


def test_a_segment_that_was_taken_over_at_its_end_begins_no_further_copy(
    slots: tuple[Harness, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness, _ = slots
    monkeypatch.setattr(arguments, "INLINE_LIMIT", 0)
    store, go_on, begun = Store.open(f"file://{tmp_path}/store"), threading.Event(), list[str]()

    def slowly(blocks: Blocks, block: BlockRef) -> BlockRef:
        begun.append(block.name)
        assert go_on.wait(60)
        return block

    def take_over(_segment: str, _outcome: Outcome) -> None:
        if sum(counted.outcomes.values()) == PARTITIONS:
            files = engine.site.files("taken")
            Ledger(store, files.segment("only"), files.key)

    monkeypatch.setattr(Blocks, "copy_to_store", slowly)
    counted = Counted(harness.local(2, tmp_path / "host"), take_over)
    engine = harness.engine(store, counted, tmp_path / "host")
    assert harness.submit(engine, Case(DOCUMENT), tmp_path, "taken") is None
    with pytest.raises(Fenced):
        harness.result(engine, "taken")
    go_on.set()
    harness.wait(copied())
    assert len(begun) == AT_ONCE
