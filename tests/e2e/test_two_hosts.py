"""Two drivers with homes of their own, as on two hosts, share a run through one Temporal and one store."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from e2e.project import TREADLE, Project, project, wait_until

from treadle.orchestrator.embedded import attach, ensure_server
from treadle.orchestrator.environment.home import Home

CHAIN = {
    f"step{number}": {
        "type": "map",
        "input": f"step{number - 1}" if number else {"range": 8},
        **({} if number else {"batch": {"maxItems": 1}}),
        "per": "partition",
        "uses": "functions:block" if number == 0 else "functions:longer",
        # Unlike settings keep the steps apart, so that each is an activity that either driver may take.
        "retry": {"maximumAttempts": 3 + number},
    }
    for number in range(6)
}
Driver = Callable[[str], "subprocess.Popen[str]"]


class Hosts:
    """A client, and drivers that share with it what real hosts would."""

    def __init__(self, here: Project, peers: str) -> None:
        self.here = here
        attach(here.home)
        server = ensure_server(here.home)
        here.environ |= {
            "TEMPORAL_ADDRESS": server.address,
            "TEMPORAL_NAMESPACE": server.namespace,
            "TREADLE_STORE": here.home.store.as_uri(),
            "TREADLE_PEERS": peers,
        }
        self.drivers: dict[str, subprocess.Popen[str]] = {}

    def start(self, name: str) -> None:
        home = Home(self.here.root / name)
        shutil.copy(self.here.home.key, home.key)
        environ = {**self.here.environ, "TREADLE_HOME": str(home.path)}
        command = [TREADLE, "worker", "--max-tasks", "1"]
        driver = subprocess.Popen(command, env=environ, text=True, stderr=subprocess.PIPE)
        self.drivers[name] = driver
        assert driver.stderr is not None
        assert "serving the queue" in driver.stderr.readline()

    def kill(self, name: str) -> None:
        """With all its memory."""
        driver = self.drivers.pop(name)
        driver.send_signal(signal.SIGKILL)
        driver.communicate()
        shutil.rmtree(Home(self.here.root / name).host_root, ignore_errors=True)

    def end(self) -> None:
        for driver in self.drivers.values():
            driver.terminate()
        for driver in self.drivers.values():
            driver.communicate(timeout=20)

    def places(self, run: str) -> dict[str, dict[str, int]]:
        """stage -> bytes read from each kind of place."""
        return {one["stages"][-1]: one["read"] for one in self.here.show(run)["stages"]}


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    with project(tmp_path) as here:
        from treadle.primitives.trust import load_or_create_key

        load_or_create_key(here.home.key)
        made = Hosts(here, "tcp://127.0.0.1:0")
        try:
            yield made
        finally:
            made.end()


def chain(log: Path) -> dict[str, Any]:
    """40 blocks too large to be inline, one step after another."""
    return {name: {**stage, "with": {"log": str(log)}} for name, stage in CHAIN.items()}


def test_two_drivers_share_a_run_and_pull_blocks_from_each_other(hosts: Hosts) -> None:
    hosts.start("left")
    hosts.start("right")
    for number in range(4):
        log = hosts.here.root / f"log-{number}"
        done = hosts.here.run(f"shared-{number}", chain(log))
        assert done.returncode == 0, done.stderr
        read = hosts.places(f"shared-{number}")
        starts = [line for line in hosts.here.notes(log.name) if line[0] == "start"]
        assert len(starts) == 48
        assert sum(places.get("store", 0) for places in read.values()) == 0, read
        if sum(places.get("peer", 0) for places in read.values()):
            return
    pytest.fail("one driver took every step of four runs")


def test_a_host_that_is_lost_costs_what_lay_on_it(hosts: Hosts) -> None:
    hosts.start("left")
    log = hosts.here.root / "log"
    stages = chain(log)
    stages["gate"] = {
        "type": "map", "input": "step5", "per": "partition", "uses": "functions:total_once",
        "with": {"gate": str(hosts.here.root / "gate")}, "retry": {"maximumAttempts": 1000, "initialInterval": "100ms",
        "maximumInterval": "100ms"},
    }  # fmt: skip
    hosts.here.submit("lost", stages)
    wait_until(lambda: len([line for line in hosts.here.notes("log") if line[:2] == ["start", "step5"]]) == 8, 60)
    hosts.start("right")
    hosts.kill("left")
    (hosts.here.root / "gate").touch()
    done = hosts.here.treadle("watch", "lost")
    assert done.returncode == 0, done.stderr
    assert sum(hosts.here.records("lost", "gate")) == sum(100_000 * (number + 5) for number in range(8))
    assert json.loads(hosts.here.treadle("show", "lost", "-o", "json").stdout)["resumption"] == 1
