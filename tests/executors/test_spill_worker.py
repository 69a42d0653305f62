"""A worker process with little memory: datasets of several times its budget go through, and it keeps to the budget.

The budget is a hard limit as well: a worker that allocates more fails with OUT_OF_MEMORY.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from executors import spill_functions as functions
from executors.memory_watch import Watch
from executors.operation_functions import FIRST, by, name

from treadle.executors.local.executor import LocalExecutor
from treadle.executors.program import (
    BlockInput,
    Job,
    Keep,
    MapPartition,
    Op,
    Outcome,
    Partition,
    PartitionInput,
    Program,
    RangeSplit,
    Reduce,
    Report,
    Scatter,
    Sort,
    Tail,
    Task,
)
from treadle.executors.testing import Place
from treadle.executors.testing.bench import call
from treadle.primitives.blocks import Blocks
from treadle.primitives.host import SHARED_MEMORY, HostFolder
from treadle.primitives.references import BlockRef
from treadle.primitives.store import Store

RECORD_BYTES = 104
"""Of a record of `functions.records`, encoded."""
SMALL = (24 << 20, 8 << 20)
LARGE = (256 << 20, 1 << 30)
SIZES = [
    pytest.param(*SMALL, id="small"),
    pytest.param(*LARGE, id="four times 256 MiB", marks=[pytest.mark.chaos, pytest.mark.timeout(3600)]),
]
"""(budget, encoded bytes of the dataset)."""


_log = logging.getLogger(__name__)


class Line:
    """A worker with a budget, to run one task after the other."""

    def __init__(self, executor: LocalExecutor, place: Place, memory: int) -> None:
        self._executor, self._memory = executor, memory
        self._job = Job("spill", "spill", "2026-01-01T00:00:00Z", 0, place.store, "")
        self.blocks = Blocks(Store.open(place.store), "spill", HostFolder(place.host_root))
        self._folders = (place.host_root, place.store.removeprefix("file://"))
        self.peaks: list[int] = []
        self._tasks = 0

    async def run(self, *ops: Op, source: PartitionInput, tail: Tail = Keep()) -> Outcome:
        self._tasks += 1
        program = Program(f"segment-{self._tasks}", ops, tail, put="host")
        task = Task(program.segment, self._job, program, (Partition(0, source),), memory=self._memory)
        reports: list[Report] = []
        worker = self._executor.slots[0]._worker
        assert worker is not None
        with Watch(worker.child.pid, self._folders) as watch:
            await self._executor.slots[0].run(task, reports.append)
        self.peaks.append(watch.peak)
        (report,) = reports
        assert isinstance(report, Outcome), report
        _log.info(
            "%s: %.1f s, CPU %.1f s, spilled %d MiB, PSS without blocks %d MiB",
            program.segment,
            report.seconds,
            report.cpu_seconds,
            report.spilled >> 20,
            watch.peak >> 20,
        )
        return report

    def records(self, block: BlockRef | None) -> list[Any]:
        assert block is not None
        return [record for piece in self.blocks.pieces(block.slice(0)) for record in piece]


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    host = tempfile.mkdtemp(prefix="treadle-spill-", dir=SHARED_MEMORY)
    yield Place(f"file://{tmp_path}/store", str(tmp_path / "key"), host)
    await asyncio.to_thread(shutil.rmtree, host)


@asynccontextmanager
async def started(place: Place, memory: int) -> AsyncIterator[Line]:
    """At the end it has kept to its budget."""
    tests = str(Path(__file__).parent.parent)
    executor = LocalExecutor(run_key=place.run_key, slots=1, memory=memory, host_root=place.host_root, path=[tests])
    await executor.start()
    line = Line(executor, place, memory)
    try:
        yield line
        if memory >= LARGE[0]:
            assert max(line.peaks) <= 1.3 * memory
    finally:
        await executor.stop()


async def shuffled(line: Line, count: int) -> BlockInput:
    """Records of `functions.records`, in one target."""
    made = MapPartition("made", call(functions.records), flat=True)
    outcome = await line.run(made, source=RangeSplit(0, count), tail=Scatter("shuffle", FIRST, 1))
    assert outcome.block is not None
    assert abs(outcome.block.size - count * RECORD_BYTES) < count * RECORD_BYTES // 10
    assert outcome.spilled > outcome.block.size // 2
    return BlockInput(((outcome.block.slice(0),),), pieces=True)


@pytest.mark.parametrize(("memory", "size"), SIZES)
async def test_a_dataset_of_several_budgets(place: Place, memory: int, size: int) -> None:
    """Made and shuffled by one task, to one target; sorted, reduced per key and folded by one task each."""
    count = size // RECORD_BYTES
    async with started(place, memory) as line:
        target = await shuffled(line, count)

        in_order = await line.run(Sort("sorted", FIRST), source=target)
        assert in_order.block is not None
        checked = await line.run(
            Reduce("check", "partition", uses=call(functions.ordered)),
            source=BlockInput(((in_order.block.slice(0),),)),
        )
        assert line.records(checked.block) == [(count, True)]
        line.blocks.host.delete_folder("spill/segment-2")  # type: ignore[union-attr]

        grouped = await line.run(
            Reduce("grouped", "key", uses=call(functions.count), by=by(functions.by_first_digits)), source=target
        )
        found = dict(line.records(grouped.block))
        assert sum(number for number, _ in found.values()) == count
        assert list(found)[:2] == [f"{functions.spread(number):010}"[:6] for number in range(2)]

        folded = await line.run(Reduce("folded", "key", combine=name(functions.longer), by=FIRST), source=target)
        assert folded.rows == count

        assert all(outcome.spilled > size // 2 for outcome in (in_order, grouped, folded))


@pytest.mark.parametrize(("memory", "size"), SIZES)
async def test_a_key_of_several_budgets(place: Place, memory: int, size: int) -> None:
    """The function gets its values one after the other."""
    count = size // RECORD_BYTES
    async with started(place, memory) as line:
        target = await shuffled(line, count)
        one = await line.run(
            Reduce("one", "key", uses=call(functions.count), by=by(functions.everything)), source=target
        )
        assert line.records(one.block) == [(0, (count, sum(number % 10 for number in range(count))))]
        assert size // 2 < one.spilled < 2 * size
