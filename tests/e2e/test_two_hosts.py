"""Two drivers with separate homes, as on two hosts, share a run through one Temporal and one store."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from e2e.hosts import Hosts, hosts
from e2e.project import TREADLE, Project, project
from eventually import eventually
from temporalio.api.enums.v1 import TaskQueueType
from temporalio.client import Client

from treadle.orchestrator.protocol.driver_count import drivers
from treadle.orchestrator.protocol.messages import GROUPS

CHAIN = {
    f"step{number}": {
        "type": "map",
        "input": f"step{number - 1}" if number else {"range": 8},
        **({} if number else {"batch": {"maxItems": 1}}),
        "per": "partition",
        "uses": "functions:block" if number == 0 else "functions:longer",
        # Different settings prevent fusion, so each step is an activity for either driver.
        "retry": {"maximumAttempts": 3 + number},
    }
    for number in range(6)
}

DIRECTLY = {"exchange": "direct"}
"""For `defaults`, since on a busy machine the store may seem faster."""


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Hosts]:
    with (
        project(tmp_path, TREADLE_PEERS="tcp://127.0.0.1:0") as here,
        hosts(here, [TREADLE, "worker", "--max-tasks", "1"]) as made,
    ):
        yield made


def places(here: Project, run: str) -> dict[str, dict[str, int]]:
    """Stage -> bytes read from each kind of place."""
    return {one["stages"][-1]: one["read"] for one in here.show(run)["stages"]}


def chain(log: Path) -> dict[str, Any]:
    """40 blocks too large to be inline, in consecutive steps."""
    return {name: {**stage, "with": {"log": str(log)}} for name, stage in CHAIN.items()}


def test_two_drivers_share_a_run_and_pull_blocks_from_each_other(two: Hosts) -> None:
    two.start("left")
    two.start("right")
    for number in range(4):
        log = two.here.root / f"log-{number}"
        done = two.here.run(f"shared-{number}", chain(log), defaults=DIRECTLY)
        assert done.returncode == 0, done.stderr
        read = places(two.here, f"shared-{number}")
        starts = [line for line in two.here.notes(log.name) if line[0] == "start"]
        assert len(starts) == 48
        assert sum(one.get("store", 0) for one in read.values()) == 0, read
        if sum(one.get("peer", 0) for one in read.values()):
            return
    pytest.fail("one driver took every step of four runs")


async def drivers_known(two: Hosts) -> int:
    """The number of drivers that the server knows. A driver's first poll may come seconds after it reports that it
    serves."""
    client = await Client.connect(two.server.address, namespace=two.server.namespace)
    return await drivers(client, "treadle" + GROUPS, TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY, timedelta(seconds=5))


def drivers_at(log: Path, here: Project) -> set[str]:
    """Parents of the workers that began a task."""
    workers = {line[-1] for line in here.notes(log.name) if line[0] == "start"}
    return {Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1] for pid in workers}


def test_two_drivers_share_the_tasks_of_one_stage(two: Hosts) -> None:
    two.start("left")
    two.start("right")
    log = two.here.root / "log"
    log.touch()
    eventually(lambda: asyncio.run(drivers_known(two)) == 2)
    gated = {"type": "map", "input": {"range": 24}, "batch": {"maxItems": 1}, "uses": "functions:gated"}
    two.here.submit("shared", {"only": {**gated, "with": {"log": str(log), "free": 0}}})
    eventually(lambda: len(drivers_at(log, two.here)) == 2)
    Path(f"{log}.gate").touch()
    assert two.here.treadle("watch", "shared").returncode == 0
    assert [len(line) for line in two.here.notes("log") if line[0] == "start"] == [6] * 24
    assert two.here.records("shared", "only") == list(range(24))


def test_gang_takes_the_slots_of_both_drivers(two: Hosts) -> None:
    two.start("left")
    two.start("right")
    eventually(lambda: asyncio.run(drivers_known(two)) == 2, patience=200)

    def gang(size: int) -> dict[str, Any]:
        made = {"type": "map", "input": {"range": 6, "partitions": size}, "per": "partition", "gang": size}
        return {"all": {**made, "uses": "functions:summed"}}

    done = two.here.run("both", gang(2))
    assert done.returncode == 0, done.stderr
    assert two.here.records("both", "all") == [15, 15]
    planned = two.here.treadle("plan", two.here.document("three", gang(3)))
    assert "each in a slot of its own" in planned.stdout, planned.stderr
    refused = two.here.run("three", gang(3))
    assert refused.returncode != 0
    assert "`gang: 3` needs 3 slots at once, and all drivers of this queue together have 2" in refused.stderr


def test_a_host_that_is_lost_costs_what_lay_on_it(two: Hosts) -> None:
    two.start("left")
    log = two.here.root / "log"
    stages = chain(log)
    stages["gate"] = {
        "type": "map", "input": "step5", "per": "partition", "uses": "functions:total_once",
        "with": {"gate": str(two.here.root / "gate")}, "retry": {"maximumAttempts": 1000, "initialInterval": "100ms",
        "maximumInterval": "100ms"},
    }  # fmt: skip
    two.here.submit("lost", stages, defaults=DIRECTLY)
    eventually(lambda: len([line for line in two.here.notes("log") if line[:2] == ["start", "step5"]]) == 8)
    two.start("right")
    two.kill("left")
    (two.here.root / "gate").touch()
    done = two.here.treadle("watch", "lost")
    assert done.returncode == 0, done.stderr
    assert sum(two.here.records("lost", "gate")) == sum(100_000 * (number + 5) for number in range(8))
    assert json.loads(two.here.treadle("show", "lost", "-o", "json").stdout)["resumption"] == 1
