"""Makes tasks, runs them on an executor, and reads their results."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from treadle.primitives.blocks import Blocks
from treadle.primitives.stores.shared_memory import HostFolder
from treadle.primitives.stores.store import Store

from ..interface import Executor
from ..plugin import Place
from ..program import (
    Arg,
    Call,
    Failure,
    ItemSplit,
    Job,
    Keep,
    MapPartition,
    MapRecords,
    Outcome,
    Partition,
    Program,
    Report,
    Task,
    Value,
)
from . import functions
from .script import Script

RUN = "conformance"
SECRET = ("token", "correct horse battery staple")
"""Name and value of the single secret that executors under test must know."""


class Workbench:
    """An executor under test, with the means to use it."""

    def __init__(self, executor: Executor, place: Place, folder: Path) -> None:
        self.executor = executor
        self.place = place
        self._folder = folder
        self._numbers = itertools.count()
        host = HostFolder(place.host_root) if executor.capabilities.shares_host else None
        self._blocks = Blocks(Store.open(place.store), RUN, host)

    def task(
        self,
        function: str,
        partitions: Sequence[Sequence[Any]],
        *,
        args: Mapping[str, Any] | None = None,
        per_partition: bool = False,
        attempt: int = 1,
        timeout: float = 0.0,
        memory: int = 0,
        inline_limit: int = 8192,
        secrets: tuple[str, ...] = (),
    ) -> Task:
        """One attempt at partitions of the given items, mapped by a function of the suite."""
        values: dict[str, Arg] = {
            name: value if isinstance(value, Arg) else Value(value) for name, value in (args or {}).items()
        }
        call = Call(f"{functions.HERE}:{function}", values)
        op = MapPartition("stage", call, flat=True) if per_partition else MapRecords("stage", call)
        put: Literal["host", "store"] = "host" if self.executor.capabilities.shares_host else "store"
        program = Program("stage", (op,), Keep(), put=put, inline_limit=inline_limit, secrets=secrets)
        inputs = tuple(Partition(index, ItemSplit(tuple(items)), attempt) for index, items in enumerate(partitions))
        job = Job(RUN, "conformance", "2026-01-01T00:00:00Z", 0, self.place.store, "")
        return Task(f"stage/{next(self._numbers)}", job, program, inputs, timeout, memory)

    def scripted(self, steps: dict[int | str, list[list[tuple[Any, ...]]]]) -> Script:
        """A script with counters of its own."""
        folder = self._folder / f"script-{next(self._numbers)}"
        folder.mkdir()
        return Script.of(folder, steps)

    def scripted_task(self, script: Script, partitions: int, **options: Any) -> Task:
        """A task whose partitions hold their own index, and play the script first."""
        items = [[index] for index in range(partitions)]
        return self.task("scripted", items, args={"script": script.as_value()}, per_partition=True, **options)

    async def run(self, task: Task, slot: int = 0) -> list[Report]:
        """The reports of one attempt."""
        reports: list[Report] = []
        await self.executor.slots[slot].run(task, reports.append)
        return reports

    async def play(self, *steps: tuple[Any, ...], **options: Any) -> Report:
        """The report of a partition that performs these steps, once."""
        (report,) = await self.run(self.scripted_task(self.scripted({0: [list(steps)]}), 1, **options))
        return report

    async def assert_usable(self, slot: int = 0) -> None:
        """Check that the slot runs another task."""
        (report,) = await self.run(self.task("same", [["next"]]), slot)
        assert self.records(report) == ["next"]

    def records(self, report: Report) -> list[Any]:
        """The records of the block of an outcome."""
        assert isinstance(report, Outcome), report
        assert report.block is not None
        return list(self._blocks.get(report.block.slice(0)))


def failure_of(report: Report) -> Failure:
    """The report, which must be a failure."""
    assert isinstance(report, Failure), report
    return report
