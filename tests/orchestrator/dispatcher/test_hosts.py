"""Several hosts share a run: blocks are pulled from the host that made them, and a lost host costs its own share."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from orchestrator.broken_runs import ROOT, Counted, Done, values
from orchestrator.record_histories import M, mapped, spec

from treadle.client.testing import EngineFailure, EngineResult
from treadle.client.testing.compare import expected
from treadle.client.testing.harness import Harness
from treadle.client.testing.hosts import SeveralHosts
from treadle.client.testing.strategies import Case
from treadle.dsl.reference import ReferenceFailure
from treadle.executors.program import Outcome
from treadle.orchestrator.dispatcher.tasks import arguments
from treadle.primitives.encoding.references import BlockRef
from treadle.primitives.stores.shared_memory import SHARED_MEMORY
from treadle.primitives.stores.store import Store

HOSTS = 8
SHUFFLE = spec(
    pairs=mapped({"range": 64, "partitions": 16}, "pair"),
    groups={"type": "shuffle", "input": "pairs", "by": "key", "partitions": 6},
    gate=mapped({"range": 1}, needs=["groups"]),
    counts={"type": "reduce", "input": "groups", "per": "key", "combine": f"{M}:add", "needs": ["gate"]},
    all={"type": "reduce", "input": "counts", "per": "all", "uses": f"{M}:listed"},
)


class Cluster:
    """Hosts with one slot each. Each serves its own folder, and can be lost together with it."""

    def __init__(self, folder: Path, memory: Path) -> None:
        self.harness = Harness(folder, ROOT)
        self.store = Store.open(f"file://{folder}/store")
        self.base = folder
        self.roots = [memory / str(number) for number in range(HOSTS)]
        self.executor = SeveralHosts([self.harness.local(1, root) for root in self.roots])
        self.numbers = iter(range(1000))
        self.serve()

    def serve(self) -> None:
        self.hosts = self.harness.hosts(self.store, self.roots, ["tcp://127.0.0.1:0"] * HOSTS)

    def run(
        self, document: dict[str, Any], see: Callable[[str, str, Outcome], None]
    ) -> tuple[EngineResult | EngineFailure, Counter[Done]]:
        """`see` receives the run's id, the segment and each outcome before the driver does."""
        run = f"run-{next(self.numbers)}"
        counted = Counted(self.executor, lambda segment, outcome: see(run, segment, outcome))
        engine = self.harness.engine(self.store, counted, self.roots[0], self.hosts)
        return self.harness.run(engine, Case(document), self.base, run), counted.outcomes

    def lose(self, number: int, run: str) -> None:
        """Lose the host with its memory, and start another one with empty memory in its place."""
        self.hosts[number].close()
        shutil.rmtree(self.roots[number] / run)
        (self.hosts[number],) = self.harness.hosts(self.store, [self.roots[number]], ["tcp://127.0.0.1:0"])
        self.hosts[number].announce(run)

    def host_of(self, block: BlockRef) -> int:
        return next(i for i, host in enumerate(self.hosts) if f"host:{host.host_id}" in block.locations)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with tempfile.TemporaryDirectory(prefix="treadle-hosts-", dir=SHARED_MEMORY) as memory:
        made = Cluster(tmp_path_factory.mktemp("hosts"), Path(memory))
        yield made
        made.harness.close()


@pytest.fixture(autouse=True)
def no_inline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arguments, "INLINE_LIMIT", 0)


def wanted(document: dict[str, Any], base: Path) -> list[Any]:
    found = expected(Case(document), base, "reference")
    assert not isinstance(found, ReferenceFailure)
    return [partition.value for partition in found.datasets["all"]]


def direct(**more: Any) -> dict[str, Any]:
    return {**SHUFFLE, "defaults": {**SHUFFLE["defaults"], "exchange": "direct", **more}}


class Watch:
    """Records which host has which blocks, from the outcomes of their producers."""

    def __init__(self, cluster: Cluster, at: str, victim: int) -> None:
        self.cluster, self.at, self.victim = cluster, at, victim
        self.places: dict[Done, int] = {}
        self.lost: set[Done] = set()
        self.read: Counter[str] = Counter()

    def __call__(self, run: str, segment: str, outcome: Outcome) -> None:
        self.read.update(outcome.read)
        if outcome.block is not None and any(one.startswith("host:") for one in outcome.block.locations):
            self.places[segment, outcome.partition] = self.cluster.host_of(outcome.block)
        if segment == self.at and not self.lost:
            self.lost = {done for done, host in self.places.items() if host == self.victim}
            self.cluster.lose(self.victim, run)


@pytest.fixture
def healed(cluster: Cluster) -> Iterator[Cluster]:
    """The cluster. Hosts that a test loses are replaced."""
    yield cluster
    for host in cluster.hosts:
        host.close()
    cluster.serve()


def test_blocks_are_pulled_from_the_hosts_that_made_them(healed: Cluster) -> None:
    watch = Watch(healed, "", -1)
    found, done = healed.run(direct(), watch)
    assert values(found, "all") == wanted(direct(), healed.base)
    assert set(done.values()) == {1}
    assert watch.read["peer"] > 0
    assert watch.read["store"] == 0


def test_a_lost_host_costs_the_tasks_whose_blocks_it_held(healed: Cluster) -> None:
    watch = Watch(healed, "gate", 3)
    found, done = healed.run(direct(), watch)
    assert values(found, "all") == wanted(direct(), healed.base)
    again = {one for one, times in done.items() if times > 1 and one[0] == "groups"}
    assert again == {one for one in watch.lost if one[0] == "groups"}
    assert again
    assert len(again) < 16
    assert {times for one, times in done.items() if one in again} == {2}


@pytest.mark.parametrize("durability", ["task", "segment"])
def test_a_lost_host_costs_nothing_when_its_blocks_are_durable(healed: Cluster, durability: str) -> None:
    watch = Watch(healed, "gate", 5)
    found, done = healed.run(direct(durability=durability), watch)
    assert values(found, "all") == wanted(direct(), healed.base)
    assert {one for one in watch.lost if one[0] == "groups"}
    assert {times for one, times in done.items() if one[0] == "groups"} == {1}
    assert watch.read["store"] > 0


def test_a_host_that_starts_again_still_has_its_blocks(healed: Cluster) -> None:
    def restart(_run: str, segment: str, _outcome: Outcome) -> None:
        if segment == "gate" and not restarted:
            restarted.append(True)
            for host in healed.hosts:
                host.close()
            healed.serve()

    restarted: list[bool] = []
    found, done = healed.run(direct(), restart)
    assert values(found, "all") == wanted(direct(), healed.base)
    assert restarted
    assert set(done.values()) == {1}


def test_block_from_a_peer_is_verified(healed: Cluster) -> None:
    def damage(run: str, segment: str, outcome: Outcome) -> None:
        if segment == "groups" and outcome.partition == 2 and outcome.attempt == 1 and outcome.block is not None:
            path = healed.roots[healed.host_of(outcome.block)] / run / outcome.block.name
            os.chmod(path, 0o600)
            path.write_bytes(b"\xff" * outcome.block.size)

    found, done = healed.run(direct(), damage)
    assert values(found, "all") == wanted(direct(), healed.base)
    assert done["groups", 2] == 2
