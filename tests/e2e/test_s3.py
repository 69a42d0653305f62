"""The store, the inputs and the outputs on a real S3 server, which may go away and return."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from e2e.project import HERE, Project, project
from eventually import eventually

from treadle.primitives.stores.store import Store
from treadle.primitives.testing.s3 import S3Endpoint, seaweedfs

EXAMPLES = HERE.parents[1] / "examples"


@dataclass
class Gateway:
    """A gateway between treadle and the server."""

    target: int
    port: int
    process: subprocess.Popen[bytes] | None = field(default=None)

    def open(self) -> None:
        command = [sys.executable, str(HERE / "gate.py"), str(self.port), str(self.target)]
        self.process = subprocess.Popen(command, stderr=subprocess.DEVNULL)

    def close(self) -> None:
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process = None


@dataclass
class Cloud:
    project: Project
    endpoint: S3Endpoint
    gateway: Gateway


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    with seaweedfs() as endpoint, socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
        probe.close()
        gateway = Gateway(int(endpoint.url.rsplit(":", 1)[1]), port)
        gateway.open()
        known = endpoint.environment | {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}"}
        try:
            with project(tmp_path_factory.mktemp("s3"), TREADLE_STORE="s3://treadle/work", **known) as here:
                yield Cloud(here, endpoint, gateway)
        finally:
            gateway.close()


def stages(log: Path, free: int) -> dict[str, Any]:
    work = {"type": "map", "input": {"range": 12}, "batch": {"maxItems": 1}, "uses": "functions:gated"}
    return {
        "work": work | {"with": {"log": str(log), "free": free}},
        "wait": {"type": "barrier", "input": "work"},
        "twice": {"type": "map", "input": "wait", "uses": "functions:double"},
    }


def under_way(here: Project, run: str) -> Path:
    """A run with six committed partitions, while the next ones wait."""
    log = here.root / f"{run}.log"
    here.submit(run, stages(log, 6))
    eventually(lambda: len(here.notes(log.name)) == 14)
    eventually(lambda: here.show(run)["stages"][0]["committed"] == 6)
    return log


def ended_well(here: Project, run: str) -> None:
    assert here.records(run, "twice") == [2 * i for i in range(12)]


def repeated(here: Project, log: Path) -> set[str]:
    starts = Counter(note[2] for note in here.notes(log.name) if note[0] == "start")
    return {partition for partition, times in starts.items() if times > 1}


def test_terasort_reads_and_writes_buckets(cloud: Cloud) -> None:
    store = Store.open("s3://treadle", **cloud.endpoint.options)
    for index in range(3):
        records = np.random.default_rng(index).integers(33, 127, size=(20_000, 100), dtype=np.uint8)
        store.put(f"in/rec-{index}", records.tobytes())
    inputs = ("source=s3://treadle/in/rec-*", "target=s3://treadle/sorted", "partitions=4")
    words = [word for pair in inputs for word in ("-i", pair)]
    done = cloud.project.treadle("run", EXAMPLES / "terasort/terasort.yaml", "--id", "terasort", *words)
    assert done.returncode == 0, done.stderr
    parts = [info.name for info in store.list("sorted/") if "part-" in info.name]
    data = b"".join(store.get(name) for name in sorted(parts))
    keys = [data[i : i + 10] for i in range(0, len(data), 100)]
    assert len(keys) == 60_000
    assert keys == sorted(keys)


def test_a_dead_driver_leaves_its_commits_in_the_bucket(cloud: Cloud) -> None:
    log = under_way(cloud.project, "killed")
    cloud.project.kill_driver()
    Path(f"{log}.gate").touch()
    done = cloud.project.treadle("resume", "killed")
    assert done.returncode == 0, done.stderr
    assert repeated(cloud.project, log) <= {"6", "7"}
    ended_well(cloud.project, "killed")


def test_a_run_waits_for_a_store_that_is_away(cloud: Cloud) -> None:
    log = under_way(cloud.project, "away")
    cloud.gateway.close()
    Path(f"{log}.gate").touch()
    time.sleep(8)
    lost = cloud.project.treadle("show", "away")
    cloud.gateway.open()
    assert lost.returncode == 5
    assert "AWS_ENDPOINT_URL" in lost.stderr
    done = cloud.project.treadle("watch", "away")
    assert done.returncode == 0, done.stderr
    assert not repeated(cloud.project, log) & {str(i) for i in range(6)}
    ended_well(cloud.project, "away")
