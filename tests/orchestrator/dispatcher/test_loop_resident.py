"""A loop's input stays in its workers, its state travels inline, and an iteration is one record."""

from __future__ import annotations

import itertools
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from orchestrator.broken_runs import values

from treadle.client.testing import Engine, EngineResult
from treadle.client.testing.compare import differences, expected
from treadle.client.testing.harness import Harness
from treadle.client.testing.strategies import Case
from treadle.executors.interface import Executor
from treadle.orchestrator.dispatcher.ledger import group_commit
from treadle.orchestrator.dispatcher.ledger.ledger import Committed, Iterated, Record, read
from treadle.primitives import sealing
from treadle.primitives.stores.store import Store

M = "orchestrator.loop_functions"
PARTITIONS, ITERATIONS = 4, 12
_numbers = itertools.count()


def reduced(given: str, combine: str, finish: str, **more: Any) -> dict[str, Any]:
    functions = {"combine": f"{M}:{combine}", "finish": f"{M}:{finish}"}
    return {"type": "reduce", "input": given, "per": "all", **functions, "with": {"old": "${{ stages.ship }}"}, **more}


def mapped(given: Any, function: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "map", "input": given, "per": "partition", "uses": f"{M}:{function}", "with": arguments}


def document(start: dict[str, Any], stages: dict[str, Any], exchange: str = "auto", **state: Any) -> dict[str, Any]:
    """`turns` carries `model` from `start` to `after`, ITERATIONS times."""
    turns = {
        "type": "loop",
        "state": {"model": "start", **{name: first for name, (first, _) in state.items()}},
        "maxIterations": ITERATIONS,
        "stages": {"ship": {"type": "broadcast", "input": "state.model"}, **stages},
        "next": {"model": "after", **{name: then for name, (_, then) in state.items()}},
    }
    load = mapped({"range": 100, "partitions": PARTITIONS}, "cloud")
    end = {"type": "map", "input": "turns.state.model", "uses": f"{M}:each", "flat": True}
    return {
        "apiVersion": "treadle/v1",
        "name": "resident",
        "defaults": {"exchange": exchange},
        "stages": {"load": load, "start": start, "turns": turns, "end": end},
    }


def kmeans(exchange: str = "auto") -> dict[str, Any]:
    start = {"type": "reduce", "input": "load", "per": "all", "uses": f"{M}:some", "with": {"count": 5}}
    work = mapped("load", "assign", centroids="${{ stages.ship }}")
    after = reduced("work", "add", "move", metrics={"shift": "number"})
    return document(start, {"work": work, "after": after}, exchange)


def descent(exchange: str = "auto") -> dict[str, Any]:
    start = {"type": "reduce", "input": "load", "per": "all", "uses": f"{M}:some", "with": {"count": 1}}
    work = mapped("load", "descend", weights="${{ stages.ship }}", rate="${{ 1 / state.epoch }}")
    after = reduced("work", "add", "move", metrics={"shift": "number"})
    return document(start, {"work": work, "after": after}, exchange, epoch=(1, "${{ state.epoch + 1 }}"))


def trail() -> dict[str, Any]:
    start = {"type": "reduce", "input": "load", "per": "all", "uses": f"{M}:nothing"}
    return document(start, {"work": mapped("load", "look"), "after": reduced("work", "join", "behind")})


class Bench(NamedTuple):
    """Two workers that share memory, and a store of files."""

    harness: Harness
    engine: Engine
    store: Store
    host: Path

    def go(self, document: dict[str, Any]) -> tuple[str, EngineResult]:
        run = f"resident-{next(_numbers)}"
        found = self.harness.run(self.engine, Case(document), self.harness.folder, run)
        assert isinstance(found, EngineResult), found
        return run, found

    def ledger(self, run: str) -> list[Record]:
        return read(self.store, f"runs/{run}/segments/turns", sealing.run_key(self.harness.key, run))


@pytest.fixture(scope="module")
def bench(slots: tuple[Harness, Executor]) -> Bench:
    harness, _ = slots
    host = harness.folder / "resident"
    store = Store.open(f"file://{harness.folder}/store")
    return Bench(harness, harness.engine(store, harness.local(2, host), host), store, host)


def test_partition_is_decoded_once_in_each_worker(bench: Bench) -> None:
    _, found = bench.go(trail())
    [places] = values(found, "end")
    seen: dict[tuple[int, int], set[int]] = defaultdict(set)
    for process, partition, address in places:
        seen[process, partition].add(address)
    assert len(places) == PARTITIONS * ITERATIONS
    assert {partition for _, partition in seen} == set(range(PARTITIONS))
    assert all(len(addresses) == 1 for addresses in seen.values())


def test_small_state_travels_inline(bench: Bench) -> None:
    run, _ = bench.go(kmeans())
    blocks = [record.outcome.block for record in bench.ledger(run) if isinstance(record, Committed)]
    assert len(blocks) >= (PARTITIONS + 1) * ITERATIONS
    assert {block.locations for block in blocks if block is not None} == {("inline",)}
    names = [info.name for info in bench.store.list(f"runs/{run}/blocks/")]
    assert not [name for name in names if "/turns-" in name]
    kept = {path.name for path in (bench.host / run).iterdir()}
    assert "load" in kept
    assert not [name for name in kept if name.startswith("turns-")]


def test_iteration_is_one_record_and_waits_for_no_disk(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_commit, "WINDOW", 3600.0)  # a wait for the disk writes an object, or hangs
    run, _ = bench.go(kmeans())
    iterated = [record for record in bench.ledger(run) if isinstance(record, Iterated)]
    assert [record.iteration for record in iterated] == list(range(1, ITERATIONS + 1))
    objects = list(bench.store.list(f"runs/{run}/segments/turns/ledger/"))
    assert len(objects) == 2, "the epoch, and everything"


@pytest.mark.parametrize("made", [kmeans, descent])
def test_resident_loop_is_the_loop_over_storage_and_the_definition(bench: Bench, made: Any) -> None:
    for exchange in ("auto", "storage"):
        case, base = Case(made(exchange)), bench.harness.folder
        run, found = bench.go(case.document)
        assert not differences(expected(case, base, run), found, base, run)
