"""A runtime in this process over a store in a folder. It runs programs on one partition and reads their results
back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from treadle.executors.program import (
    BlockInput,
    Call,
    Failure,
    Job,
    Keep,
    Op,
    Outcome,
    Partition,
    PartitionInput,
    PartOutput,
    Program,
    Report,
    Tail,
    Task,
    Value,
)
from treadle.executors.runtime.runtime import Runtime
from treadle.primitives import functions, sealing
from treadle.primitives.blocks import Blocks
from treadle.primitives.encoding.references import BlockRef, Kind
from treadle.primitives.stores.store import Store

RUN = "run-1"
KEY = sealing.run_key(bytes(32), RUN)


def call(function: Any, **arguments: Any) -> Call:
    """A call of a function of this process with JSON values as arguments."""
    return Call(functions.reference(function), {name: Value(value) for name, value in arguments.items()})


class Bench:
    """One runtime, and the blocks of one run."""

    def __init__(
        self, folder: Path | str, *, secrets: Mapping[str, str] = {}, cache_bytes: int = 1 << 20, room: int = 0
    ) -> None:
        """`folder`: a path, or the URL of a store."""
        self.store = Store.open(folder if isinstance(folder, str) else f"file://{folder}")
        self.blocks = Blocks(self.store, RUN)
        self.runtime = Runtime(None, cache_bytes, secrets.__getitem__, room)
        self.job = Job(RUN, "bench", "2026-01-02T03:04:05Z", 7, self.store.url, "")

    def put(self, *partitions: Any, kind: Kind = "objects", inline: int = 0) -> BlockRef:
        """Put a block into the store with each value as one part."""
        return self.blocks.put("input/0.1", kind, partitions, "store", inline)

    def blocks_of(self, *partitions: Any, kind: Kind = "objects") -> BlockInput:
        """The values as the source partitions of one input."""
        return BlockInput((tuple(self.put(value, kind=kind).slice(0) for value in partitions),))

    def report(
        self,
        *ops: Op,
        source: PartitionInput | Sequence[Any],
        tail: Tail = Keep(),
        index: int = 0,
        attempt: int = 1,
        final: bool = True,
        segment: str = "segment",
        output: PartOutput | None = None,
        secrets: tuple[str, ...] = (),
        inline: int = 8192,
    ) -> Report:
        """The runtime's report for a partition that reads `source` (a sequence: records in a block)."""
        given = self.blocks_of(list(source)) if isinstance(source, Sequence) else source
        program = Program(segment, ops, tail, output=output, secrets=secrets, inline_limit=inline)
        reports: list[Report] = []
        task = Task("task", self.job, program, (Partition(index, given, attempt, final),))
        self.runtime.run(task, KEY, reports.append)
        (report,) = reports
        return report

    def outcome(self, *ops: Op, **settings: Any) -> Outcome:
        """The outcome. Raises AssertionError with the failure if there is none."""
        report = self.report(*ops, **settings)
        assert isinstance(report, Outcome), report.traceback
        return report

    def failure(self, *ops: Op, **settings: Any) -> Failure:
        report = self.report(*ops, **settings)
        assert isinstance(report, Failure), report
        return report

    def parts(self, *ops: Op, **settings: Any) -> list[Any]:
        """The values of the parts of the resulting block."""
        block = self.outcome(*ops, **settings).block
        assert block is not None
        return self.values(block)

    def records(self, *ops: Op, **settings: Any) -> Any:
        """The single resulting part."""
        (value,) = self.parts(*ops, **settings)
        return value

    def values(self, block: BlockRef) -> list[Any]:
        return [self.blocks.get(block.slice(index)) for index in range(len(block.parts))]
