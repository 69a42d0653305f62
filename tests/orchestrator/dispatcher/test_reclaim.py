"""Full shared memory: blocks go to the store, and blocks without readers make room for the next ones."""

from __future__ import annotations

import contextlib
import itertools
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from orchestrator.broken_runs import ROOT, Counted
from orchestrator.record_histories import mapped, spec

from treadle.client.testing import Engine, EngineResult
from treadle.client.testing.harness import Harness
from treadle.client.testing.strategies import Case
from treadle.executors.program import Outcome
from treadle.orchestrator.dispatcher.blocks.block_gc import Reclaimer, Tidier
from treadle.orchestrator.dispatcher.driver_context.run_context import RunContext
from treadle.orchestrator.dispatcher.ledger.group_commit import LedgerWriter
from treadle.orchestrator.dispatcher.ledger.ledger import Iterated
from treadle.orchestrator.run_store.run_files import Manifest
from treadle.orchestrator.scheduler.instructions import Summary
from treadle.primitives.errors import StoreError
from treadle.primitives.stores.shared_memory import HostFolder
from treadle.primitives.stores.store import Store

M = "orchestrator.memory_functions"
MIB = 1 << 20
PARTITIONS = 4
STAGES = [f"s{number}" for number in range(10)]


def pipeline(size: int) -> dict[str, Any]:
    """Stages of `size` bytes each, without fusion."""
    first = {"type": "map", "uses": f"{M}:filled", "with": {"size": size // PARTITIONS}}
    stages = {"s0": first | {"input": {"range": PARTITIONS, "partitions": PARTITIONS}}}
    for number, (before, name) in enumerate(itertools.pairwise(STAGES)):
        stages[name] = {"type": "map", "input": before, "uses": f"{M}:next_byte", "timeout": f"{100 + number}s"}
    stages["end"] = {"type": "map", "input": STAGES[-1], "uses": f"{M}:first_byte"}
    document = spec(**stages)
    return document | {"defaults": document["defaults"] | {"exchange": "direct"}}


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
    made = Harness(tmp_path_factory.mktemp("reclaim"), ROOT)
    yield made
    made.close()


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A host folder with 16 MiB of memory."""
    folder = tmp_path_factory.mktemp("small")
    mounting = ["mount", "-t", "tmpfs", "-o", f"size={16 * MIB},mode=700", "treadle", str(folder)]
    if shutil.which("mount") is None or subprocess.run(mounting, capture_output=True, check=False).returncode:
        pytest.skip("a small file system in memory cannot be mounted here: that needs root")
    yield folder / "treadle"
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


class Piped:
    """A run of the pipeline. Its blocks have 1.5 times the memory's size, or a given number of bytes."""

    def __init__(self, harness: Harness, root: Path, run: str) -> None:
        self._harness, self.run, self.folder = harness, run, root / run
        self.store = Store.open(f"file://{harness.folder}/store")
        self.done: Counter[tuple[str, int]] = Counter()
        self.elsewhere: set[str] = set()
        """Stages of which a block went to the store."""
        self.engine = harness.engine(self.store, Counted(harness.local(2, root, room=MIB), self._see), root)
        self.at: Callable[[str, Outcome], None] = lambda _segment, _outcome: None

    def _see(self, segment: str, outcome: Outcome) -> None:
        self.done[segment, outcome.partition] += 1
        if outcome.block is not None and outcome.block.locations == ("store",):
            self.elsewhere.add(segment)
        self.at(segment, outcome)

    def go(self, size: int = 24 * MIB // len(STAGES)) -> None:
        refused = self._harness.submit(self.engine, Case(pipeline(size)), self._harness.folder, self.run)
        assert refused is None, refused
        found = self._harness.result(self.engine, self.run)
        assert isinstance(found, EngineResult), found
        assert [value for _, value in found.datasets["end"]] == [[number + 9] for number in range(PARTITIONS)]

    @property
    def there(self) -> set[str]:
        """Stages that have blocks in shared memory."""
        return {path.parent.name for path in self.folder.glob("*/*")}


@pytest.fixture
def piped(harness: Harness, small: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Piped:
    """A run with only the last stage read. The memory of the others is freed, or will be soon."""
    everything = Engine._datasets  # private: the replacement calls the original

    def only_end(self: Engine, run: RunContext, skipped: set[str]) -> Any:
        return everything(self, run, skipped | set(STAGES))

    monkeypatch.setattr(Engine, "_datasets", only_end)
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(small)
    return Piped(harness, small, request.node.name.replace("_", "-")[5:30])


def test_stages_that_need_more_than_the_memory_together_get_it_one_after_the_other(piped: Piped) -> None:
    piped.go()
    assert set(piped.done.values()) == {1}
    assert piped.elsewhere, "the memory is not full"
    assert piped.elsewhere <= {"s5", "s6", "s7"}
    assert not {"s0", "s1", "s2", "s3"} & piped.there
    assert {"s8", "s9"} <= piped.there


def test_nothing_is_given_back_while_there_is_room(piped: Piped) -> None:
    piped.go(8 * MIB // len(STAGES))
    assert not piped.elsewhere
    assert piped.there == set(STAGES)


def test_block_lost_later_is_recomputed_from_the_beginning(piped: Piped) -> None:
    """Recomputes one partition from the beginning. The recomputed blocks are not freed again."""
    lost: list[int] = []
    in_store = piped.store.path(f"runs/{piped.run}/blocks")
    assert in_store is not None

    def lose(segment: str, outcome: Outcome) -> None:
        if segment == "s8" and not lost:
            lost.append(outcome.partition)
            for folder in (piped.folder, in_store):
                for path in folder.glob(f"*/{outcome.partition}.*"):
                    path.unlink(missing_ok=True)

    piped.at = lose
    piped.go()
    again = {(stage, partition) for (stage, partition), times in piped.done.items() if times > 1}
    assert {partition for _, partition in again} == set(lost)
    assert ("s0", *lost) in again
    assert max(piped.done.values()) == 2
    assert "s0" in piped.there


# -- removable blocks --------------------------------------------------------------------------------------------------

SOURCE = {"range": 2, "partitions": 2}
OWN = {"timeout": "9s"}
"""Keeps a map out of its producer's tasks."""
FORK = spec(a=mapped(SOURCE), b=mapped("a", **OWN), c=mapped("a", **OWN), d=mapped("c"))
BARRIER = spec(a=mapped(SOURCE), wait={"type": "barrier", "input": "a"}, b=mapped("wait"), c=mapped("b", **OWN))
LOOP = spec(
    a=mapped(SOURCE),
    turns={
        "type": "loop",
        "state": {"data": "a"},
        "maxIterations": 2,
        "stages": {"step": mapped("state.data")},
        "next": {"data": "step"},
    },
    b=mapped("turns.state.data"),
)


@pytest.fixture(scope="module")
def planning(harness: Harness, tmp_path_factory: pytest.TempPathFactory) -> Engine:
    """An engine for planning only."""
    folder = tmp_path_factory.mktemp("planning")
    return harness.engine(Store.open(f"file://{folder}/store"), harness.local(1, folder / "host"), folder / "host")


Step = tuple[str, int, set[str]]
"""(the segment that closes, how often, the segments with blocks afterwards)."""


@pytest.mark.parametrize(
    ("document", "steps"),
    [
        pytest.param(FORK, [("a", 1, {"a"}), ("b", 1, {"a", "b"}), ("c", 1, {"b", "c"})], id="two readers"),
        pytest.param(FORK, [("a", 2, {"a"}), ("b", 1, {"a", "b"}), ("c", 1, {"a", "b", "c"})], id="made again"),
        pytest.param(BARRIER, [("a", 1, {"a"}), ("b", 1, {"b"})], id="barrier"),
        pytest.param(LOOP, [("a", 1, {"a"}), ("b", 1, {"b"})], id="what a loop may pass on"),
    ],
)
def test_only_blocks_made_once_and_read_by_all_are_reclaimed(
    harness: Harness, planning: Engine, tmp_path: Path, document: dict[str, Any], steps: list[Step]
) -> None:
    plain = document | {"defaults": document["defaults"] | {"exchange": "direct"}}
    refused = harness.submit(planning, Case(plain), tmp_path, tmp_path.name)
    assert refused is None, refused
    run, host = planning.site.open(tmp_path.name), planning.site.host
    assert host is not None
    for segment, generation, left in steps:
        for number in range(1, generation + 1):
            block = run.blocks.put(f"{segment}/0.{number}", "objects", [[number]], "host")
            made = Outcome(0, number, "objects", 1, block)
            run.files.create_manifest(Manifest(segment, 1, (made,), Summary()), number)
        Reclaimer(run.files, run.plan.graph, run.blocks).reclaim(host)
        assert {path.parent.name for path in host.path(run.folder).glob("*/*")} == left


async def test_what_an_iteration_left_may_stay_where_it_cannot_be_removed(tmp_path: Path) -> None:
    """A late driver may remove the same blocks at the same time."""

    class Busy(HostFolder):
        def delete_folder(self, name: str) -> None:
            raise StoreError(f"{name}: somebody else removes it")

    host = Busy(tmp_path)
    host.put("run/turns-1/step/0.1.x", [b"data"])
    tidier, written = Tidier(host, "run"), SimpleNamespace(wrote=lambda _: True)
    tidier.after("turns", 2, Iterated("turns", 2, {}, {}, finished=False), 1)
    await tidier.tidy(cast(LedgerWriter, written))
    assert host.folders("run/turns-1") == ["step"]
