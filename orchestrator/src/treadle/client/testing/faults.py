"""Faults as data: faults of the functions, workers, blocks and driver of a generated run.

A run must survive its faults: its result is the same as without them. Functions play their faults themselves, from a
file that is named after the run. All other faults happen here, between the driver and a healthy executor or store.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from treadle.executors.interface import Capabilities, Executor, Slot
from treadle.executors.program import Failure, Outcome, Report, Task
from treadle.primitives.encoding.references import BlockRef
from treadle.primitives.errors import FailureClass, StoreError
from treadle.primitives.stores.store import ObjectInfo, Store, Stream

from .strategies import Case

CallFault = Literal["raise", "exit", "kill", "sleep"]
ReportFault = Literal["lose", "drop", "corrupt", "delete"]


@dataclass(frozen=True)
class Faults:
    """The faults of one run."""

    calls: tuple[tuple[str, int, int, CallFault], ...] = ()
    """(path of a stage, partition, attempt, action of its function)."""
    reports: Mapping[int, ReportFault] = field(default_factory=dict)
    """Index of an outcome -> its fault. `lose`: the worker is lost after writing the block and before its report.
    `drop`: the executor loses this report and all later ones of the task. Otherwise the block is damaged."""

    def write(self, folder: Path, run: str) -> None:
        """Write the faults for the functions of the run."""
        script: dict[str, Any] = {}
        for stage, partition, attempt, action in self.calls:
            script.setdefault(stage, {}).setdefault(str(partition), {})[str(attempt)] = action
        (folder / f"{run}.json").write_text(json.dumps(script))


@st.composite
def faults(draw: DrawFn, case: Case) -> Faults:
    """Faults that the case survives: few enough losses, and one failure if an attempt may fail."""
    paths = list(_paths(case.document["stages"]))
    attempts = case.document["defaults"]["retry"]["maximumAttempts"]
    calls: list[tuple[str, int, int, CallFault]] = []
    if paths:
        where = st.tuples(st.sampled_from(paths), st.integers(0, 3), st.integers(1, 2))
        deaths: SearchStrategy[CallFault] = st.sampled_from(["kill", "exit", "sleep"])
        calls = [(*place, draw(deaths)) for place in draw(st.lists(where, max_size=3))]
        if attempts > 1 and draw(st.booleans()):
            calls.append((*draw(where), "raise"))
    damage: SearchStrategy[ReportFault] = st.sampled_from(["delete", "corrupt", "lose", "drop"])
    return Faults(tuple(calls), draw(st.dictionaries(st.integers(0, 25), damage, max_size=4)))


def _paths(stages: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Paths of the stages with functions, in the first two iterations of their loops."""
    for name, stage in stages.items():
        if stage["type"] == "loop":
            for iteration in (1, 2):
                yield from _paths(stage["stages"], f"{prefix}{name}[{iteration}].")
        elif "uses" in stage or "finish" in stage:
            yield prefix + name


# -- workers and blocks --------------------------------------------------------------------------------------------


class FaultyExecutor:
    """An executor that loses some outcomes, or whose blocks are damaged after they are reported."""

    def __init__(
        self, inner: Executor, plan: Mapping[int, ReportFault], damage: Callable[[BlockRef, str], None]
    ) -> None:
        self.capabilities: Capabilities = inner.capabilities
        self._inner, self._plan, self._damage = inner, plan, damage
        self._outcomes = 0
        self._slots = [_FaultySlot(slot, self._meddle) for slot in inner.slots]

    @property
    def slots(self) -> Sequence[Slot]:
        return self._slots

    async def start(self) -> None:
        await self._inner.start()

    async def stop(self) -> None:
        await self._inner.stop()

    def _meddle(self, outcome: Outcome) -> ReportFault | None:
        """The fault of this outcome."""
        action = self._plan.get(self._outcomes)
        self._outcomes += 1
        for block in (outcome.block, outcome.effects) if action in ("corrupt", "delete") else ():
            if block is not None:
                self._damage(block, str(action))
        return action


class _FaultySlot:
    def __init__(self, inner: Slot, meddle: Callable[[Outcome], ReportFault | None]) -> None:
        self.name = inner.name
        self._inner, self._meddle = inner, meddle

    @property
    def task(self) -> str:
        return self._inner.task

    async def stop(self) -> None:
        await self._inner.stop()

    async def run(self, task: Task, report: Callable[[Report], None]) -> None:
        lost = False

        def pass_on(one: Report) -> None:
            nonlocal lost
            if lost:
                return
            action = self._meddle(one) if isinstance(one, Outcome) else None
            lost = action in ("lose", "drop")
            if action == "lose":
                one = Failure(one.partition, one.attempt, FailureClass.WORKER_LOST, "lost by a test")
            if action != "drop":
                report(one)

        await self._inner.run(task, pass_on)


class Damage:
    """Damages blocks of a run in all their locations, and records their names."""

    def __init__(self, store: Store, run: str, *host_roots: Path | None) -> None:
        self._store, self._run = store, run
        self._host_roots = [root for root in host_roots if root is not None]
        self.blocks: set[str] = set()

    def __call__(self, block: BlockRef, action: str) -> None:
        if block.locations == ("inline",) or not block.size:
            return
        self.blocks.add(block.name)
        name = f"runs/{self._run}/blocks/{block.name}"
        if "store" in block.locations:
            self._store.delete([name])
            if action == "corrupt":
                self._store.put(name, b"\xff" * block.size)
        for root in self._host_roots:
            path = root / self._run / block.name
            if path.exists():
                path.unlink()
                if action == "corrupt":
                    path.write_bytes(b"\xff" * block.size)


# -- the driver ----------------------------------------------------------------------------------------------------


class CrashingStore(Store):
    """A driver's store that fails permanently at its n-th write, just before it or just after."""

    def __init__(self, inner: Store, write: int, *, after: bool) -> None:
        self.url = inner.url
        self._inner, self._left, self._after = inner, write, after
        self.crashed = False

    def _writing(self, write: Callable[[], Any]) -> Any:
        self._alive()
        self._left -= 1
        if self._left > 0:
            return write()
        self.crashed = True
        if self._after:
            write()
        return self._alive()

    def _alive(self) -> None:
        if self.crashed:
            raise StoreError("the driver is dead", "This is a test.")

    def put(self, name: str, data: Stream) -> None:
        self._writing(lambda: self._inner.put(name, data))

    def create(self, name: str, data: Stream) -> bool:
        return bool(self._writing(lambda: self._inner.create(name, data)))

    def get(self, name: str) -> bytes:
        self._alive()
        return self._inner.get(name)

    def get_range(self, name: str, start: int, length: int) -> bytes:
        self._alive()
        return self._inner.get_range(name, start, length)

    def head(self, name: str) -> ObjectInfo | None:
        self._alive()
        return self._inner.head(name)

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        self._alive()
        return self._inner.list(prefix)

    def delete(self, names: Iterable[str]) -> None:
        self._alive()
        self._inner.delete(names)

    def delete_prefix(self, prefix: str) -> None:
        self._alive()
        self._inner.delete_prefix(prefix)

    def path(self, name: str) -> Path | None:
        return self._inner.path(name)
