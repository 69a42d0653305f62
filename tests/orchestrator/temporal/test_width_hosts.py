"""Two drivers with separate homes share a wide stage. One is killed midway. No committed partition runs again."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from e2e.hosts import Hosts, hosts
from e2e.project import TREADLE, project
from eventually import eventually
from orchestrator.temporal.test_history_size import bound
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client

from treadle.orchestrator.dispatcher.ledger.ledger import Committed, read
from treadle.orchestrator.run_store.run_files import RunFiles
from treadle.primitives import sealing
from treadle.primitives.stores.store import Store

RUN = "wide"


class Wide:
    """A run of two hosts, seen through its store and its history."""

    def __init__(self, hosts: Hosts) -> None:
        self.here, self._server = hosts.here, hosts.server
        key = sealing.load_or_create_key(self.here.home.key)
        self.files = RunFiles(Store.open(self.here.home.store.as_uri()), RUN, sealing.run_key(key, RUN))

    def committed(self) -> set[int]:
        """Partitions on record, in the ledgers of all groups."""
        here = self.files
        return {
            record.outcome.partition
            for chain in here.ledgers("only")
            for record in read(here.store, chain, here.key)
            if isinstance(record, Committed)
        }

    def starts(self) -> Counter[int]:
        """Partition -> attempts that began."""
        return Counter(int(line[2]) for line in self.here.notes("log") if line[0] == "start")

    def events(self) -> Counter[str]:
        async def fetch() -> Counter[str]:
            client = await Client.connect(self._server.address, namespace=self._server.namespace)
            history = await client.get_workflow_handle(RUN).fetch_history()
            return Counter(EventType.Name(event.event_type) for event in history.events)

        return asyncio.run(fetch())


def share(tmp_path: Path, items: int, group: int, command: list[str], seconds: float, patience: float) -> None:
    """Two hosts run `items` partitions. One dies when a third of them is committed."""
    with project(tmp_path) as here:
        with hosts(here, [*command, "worker"]) as drivers:
            run = Wide(drivers)
            drivers.start("left")
            drivers.start("right")
            stage = {
                "type": "map",
                "input": {"range": items},
                "batch": {"maxItems": 1},
                "uses": "functions:slow",
                "with": {"log": str(tmp_path / "log"), "seconds": seconds},
            }
            here.submit(RUN, {"only": stage})
            eventually(lambda: len(run.starts()) >= items // 3, patience)
            drivers.kill("left")
            before = run.committed()
            done = here.treadle("watch", RUN, timeout=patience)
            assert done.returncode == 0, done.stderr
        starts, found = run.starts(), run.events()
        manifest = run.files.manifest("only")
        assert manifest is not None
        assert [outcome.partition for outcome in manifest.outcomes] == list(range(items))
        assert here.records(RUN, "only") == list(range(items))
        assert set(starts) == set(range(items))
        assert not before & {partition for partition, times in starts.items() if times > 1}, "done again"
        assert len({outcome.slot.partition("/")[0] for outcome in manifest.outcomes}) == 2, "one host did it all"
        assert sum(found.values()) <= bound(found, segments=1, groups=-(-items // group)), found


def test_two_hosts_share_a_stage_and_one_dies(tmp_path: Path) -> None:
    command = [sys.executable, str(Path(__file__).parents[1] / "small_groups.py"), "250"]
    share(tmp_path, 2_000, 250, command, 0.001, 100)


@pytest.mark.chaos
def test_blocks_lost_with_a_host_are_recomputed_by_groups(tmp_path: Path) -> None:
    """Groups of a reader lose their input, and so do its producer's groups."""
    command = [sys.executable, str(Path(__file__).parents[1] / "small_groups.py"), "8"]
    gate, log = tmp_path / "gate", {"log": str(tmp_path / "log")}
    each: dict[str, Any] = {"type": "map", "per": "partition"}
    patient = {"maximumAttempts": 1000, "initialInterval": "100ms", "maximumInterval": "100ms"}
    stages = {
        "first": {**each, "input": {"range": 24, "partitions": 24}, "uses": "functions:block", "with": log},
        "only": {**each, "input": "first", "uses": "functions:longer", "with": log, "retry": {"maximumAttempts": 4}},
        "gate": {
            **each,
            "input": "only",
            "uses": "functions:total_once",
            "with": {"gate": str(gate)},
            "retry": patient,
        },
    }
    with project(tmp_path, TREADLE_PEERS="tcp://127.0.0.1:0") as here:
        with hosts(here, [*command, "worker"]) as drivers:
            files = Wide(drivers).files
            drivers.start("left")
            here.submit(RUN, stages)
            eventually(lambda: files.generation("only") == 1)
            drivers.kill("left")  # before the other driver starts, which would copy its input
            drivers.start("right")
            gate.touch()
            done = here.treadle("watch", RUN)
            assert done.returncode == 0, done.stderr
        assert here.records(RUN, "gate") == [100_000 * (number + 1) for number in range(24)]
        assert files.generation("first") > 1
        assert set(files.closed_groups("only")) == {0, 1, 2}


@pytest.mark.chaos
@pytest.mark.timeout(1200)
def test_two_hosts_share_a_hundred_thousand_items_and_one_dies(tmp_path: Path) -> None:
    share(tmp_path, 100_000, 5_000, [TREADLE], 0.0, 900)
