"""A worker process with little memory, which runs one task after the other and is measured from outside."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from executors.memory_watch import Watch

from treadle.executors import Place
from treadle.executors.local.executor import LocalExecutor
from treadle.executors.program import Job, Keep, Op, Outcome, Partition, PartitionInput, Program, Report, Tail, Task
from treadle.primitives.blocks import Blocks
from treadle.primitives.encoding.references import BlockRef
from treadle.primitives.stores.shared_memory import SHARED_MEMORY, HostFolder
from treadle.primitives.stores.store import Store

SMALL = (24 << 20, 8 << 20)
LARGE = (256 << 20, 1 << 30)
SIZES = [
    pytest.param(*SMALL, id="small"),
    pytest.param(*LARGE, id="four times 256 MiB", marks=[pytest.mark.chaos, pytest.mark.timeout(3600)]),
]
"""(budget, encoded bytes of the dataset)."""

_log = logging.getLogger(__name__)


class Line:
    """A worker with a memory budget, which runs one task after the other."""

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
        worker = self._executor.slots[0]._worker  # private: the test reads the worker's memory
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


@contextmanager
def lent(folder: Path) -> Iterator[Place]:
    """A store in the folder, and shared memory."""
    host = tempfile.mkdtemp(prefix="treadle-spill-", dir=SHARED_MEMORY)
    try:
        yield Place(f"file://{folder}/store", str(folder / "key"), host)
    finally:
        shutil.rmtree(host)


@asynccontextmanager
async def started(place: Place, memory: int) -> AsyncIterator[Line]:
    """Checks at the end that the worker has kept to its budget."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)}
    executor = LocalExecutor(
        run_key=place.run_key, slots=1, memory=memory, host_root=place.host_root, environment=environment
    )
    await executor.start()
    line = Line(executor, place, memory)
    try:
        yield line
        if memory >= LARGE[0]:
            assert max(line.peaks) <= 1.3 * memory
    finally:
        await executor.stop()
