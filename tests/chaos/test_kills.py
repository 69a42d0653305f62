"""The kill test: a run whose driver (and server) is killed repeatedly ends with the same bytes."""

from __future__ import annotations

import os
import random
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from chaos.inputs import digest, undisturbed, write_inputs
from chaos.killing import Sandbox, finished_and_repeated, restarted_after_commit

KILLS = int(os.environ.get("TREADLE_TEST_KILLS", "20"))

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[Sandbox]:
    box = Sandbox(tmp_path)
    yield box
    box.close()


@pytest.mark.parametrize(
    ("workflow", "server"),
    [
        pytest.param("terasort", False, id="terasort-driver"),
        pytest.param("terasort", True, id="terasort-driver-and-server", marks=pytest.mark.ci),
        pytest.param("kmeans", False, id="kmeans-driver"),
        pytest.param("kmeans", True, id="kmeans-driver-and-server"),
    ],
)
def test_a_run_killed_again_and_again_ends_with_the_same_bytes(sandbox: Sandbox, workflow: str, server: bool) -> None:
    inputs = write_inputs(sandbox.root / "data")[workflow]
    expected = undisturbed(sandbox, workflow, inputs)
    chance = random.Random(f"{workflow} {server}")
    number, repeated = 0, list[float]()
    while len(sandbox.kills) < KILLS:
        number += 1
        target = sandbox.root / f"disturbed-{number}"
        log = sandbox.new_log(f"log-{number}")
        sandbox.submit(f"{workflow}.yaml", f"shaken-{number}", target=target, log=log.path, seconds=0.2, **inputs)
        kills = kill_again_and_again(sandbox, f"shaken-{number}", chance, server=server)
        done = sandbox.treadle("watch", f"shaken-{number}")
        assert done.returncode == 0, done.stderr
        assert digest(target) == expected
        assert restarted_after_commit(sandbox, f"shaken-{number}", log) == []
        repeated += finished_and_repeated(log, kills)
    median = statistics.median(sandbox.restarts)
    print(f"{workflow}: {KILLS} kills in {number} runs; first task after {median:.2f} s (median)")  # noqa: T201
    oldest = max(repeated, default=0.0)
    print(f"{len(repeated)} finished tasks were not on record and ran again; the oldest ended {oldest:.3f} s before")  # noqa: T201


def kill_again_and_again(
    sandbox: Sandbox, run: str, chance: random.Random, *, server: bool
) -> list[tuple[float, float]]:
    """Kill soon after tasks have begun, resume, and repeat until the run is over or has been killed often enough."""
    before, since = len(sandbox.kills), 0.0
    while len(sandbox.kills) < KILLS:
        first = sandbox.wait_for_task(since, run)
        if first is None:
            break
        if since:
            sandbox.note_restart(first)
        time.sleep(max(0.0, first + chance.uniform(0.05, 1.0) - time.monotonic()))
        sandbox.kill(server=server)
        since = time.monotonic()
        sandbox.resume(run)
    return sandbox.kills[before:]
