"""Whole runs on resident functions: an engine over the emulated Lambda, and the places of its blocks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from orchestrator.broken_runs import Counted

from treadle.client.testing import Engine, EngineResult
from treadle.dsl.model import Spec
from treadle.executors.functions.executor import FunctionExecutor
from treadle.executors.functions.invoker import Invoker
from treadle.executors.interface import Executor
from treadle.executors.local.executor import LocalExecutor
from treadle.executors.program import Outcome
from treadle.executors.resident import MEMBERS
from treadle.executors.resident.coordinator_host import Meeting
from treadle.executors.resident.executor import MemberExecutor
from treadle.primitives import sealing
from treadle.primitives.stores.store import Store

MODULE = "staying"
MEETING = Meeting("tcp://127.0.0.1:0")
FUNCTIONS = """
import os
import time

def pairs(index, *, seconds=0.0, size=2000):
    time.sleep(seconds)
    for key in range(8):
        yield key, bytes([index % 251]) * size

def weight(key, values, *, seconds=0.0, gate=""):
    time.sleep(seconds)
    found = list(values)
    while gate and not os.path.exists(gate):
        time.sleep(0.02)
    return [len(found), sum(map(sum, found))]
"""
"""Blocks of 16 KB: too large for a message."""


def workflow(
    sources: int, *, making: float = 0.0, reading: float = 0.0, size: int = 2000, gate: str = "", **more: Any
) -> Spec:
    """A workflow in which `tasks` tasks make the input of eight readers, each in `seconds` seconds and once the file
    `gate` exists. `size`: bytes of a record. A spent attempt would fail the run."""
    stages = {
        "pairs": {
            "type": "map",
            "input": {"range": sources, "partitions": sources},
            "uses": f"{MODULE}:pairs",
            "flat": True,
            "with": {"seconds": making, "size": size},
            **more,
        },
        "groups": {"type": "shuffle", "input": "pairs", "by": "key", "partitions": 8, **more},
        "weights": {
            "type": "reduce",
            "input": "groups",
            "per": "key",
            "uses": f"{MODULE}:weight",
            "with": {"seconds": reading, "gate": gate},
        },
    }
    defaults = {"executor": "functions", "retry": {"maximumAttempts": 1}, "backups": False}
    document = {"apiVersion": "treadle/v1", "name": "staying", "stages": stages, "defaults": defaults}
    return Spec.model_validate(document)


class Provider(Protocol):
    """The provider of the functions."""

    def deploy(self, key_file: str, *, timeout: float) -> None:
        """Deploy the functions with this deployment key."""

    def invoker(self, *, seconds: float) -> Invoker:
        """An invoker for the functions. A call ends after `seconds`."""


class Rig:
    """Runs one after the other, on functions and on local slots."""

    def __init__(
        self,
        place: Provider,
        folder: Path,
        *,
        seconds: float = 60.0,
        slots: int = 2,
        meeting: Meeting = MEETING,
        functions: str = FUNCTIONS,
    ) -> None:
        """`seconds`: the time limit of a call. `functions`: the text of `MODULE`."""
        (folder / "project").mkdir()
        (folder / "project" / f"{MODULE}.py").write_text(functions)
        self.folder, self.place = folder, place
        key_file = str(folder / "key")
        self.key = sealing.load_or_create_key(key_file)
        place.deploy(key_file, timeout=seconds)
        calls = FunctionExecutor("lambda", place.invoker(seconds=seconds), key_file=key_file, slots=slots)
        self.members = MemberExecutor(calls.means, meeting, key_file=key_file, slots=slots)
        self.see: Callable[[str, Outcome], None] = lambda segment, outcome: None
        self.counted = Counted(self.members, lambda segment, outcome: self.see(segment, outcome))
        local = LocalExecutor(
            run_key=lambda run: sealing.run_key(self.key, run), slots=3, memory=1 << 30, host_root=str(folder / "host")
        )
        executors: dict[str, Executor] = {"local": local, "functions": calls, f"functions{MEMBERS}": self.counted}
        self.engine = Engine(Store.open(f"file://{folder}/store"), executors, self.key, folder / "host")

    async def run(self, spec: Spec, name: str) -> EngineResult:
        project = self.folder / "project"
        run = self.engine.submit(spec, {}, base=self.folder, roots=[project], run=name)
        return await self.engine.run(run)

    async def local(self, spec: Spec) -> EngineResult:
        defaults = spec.defaults.model_copy(update={"executor": "local"})
        return await self.run(spec.model_copy(update={"defaults": defaults}), "local")

    def outcomes(self, run: str, segment: str) -> tuple[Outcome, ...]:
        found = self.engine.site.files(run).manifest(segment)
        assert found is not None
        return found.outcomes

    def read(self, run: str, segment: str) -> Counter[str]:
        """Kind of place -> bytes that a segment read from there."""
        total: Counter[str] = Counter()
        for outcome in self.outcomes(run, segment):
            total.update(outcome.read)
        return total

    async def stop(self) -> None:
        await self.engine.site.pools.stop()


def host_of(outcome: Outcome) -> str:
    """The host of the member that holds its block."""
    assert outcome.block is not None
    (place,) = outcome.block.locations
    return place
