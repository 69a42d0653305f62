"""The kill test: a run whose driver (and server) is killed again and again ends with the same bytes."""

from __future__ import annotations

import os
import random
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from chaos.inputs import digest, undisturbed, write_inputs
from chaos.killing import Sandbox, unexcused

KILLS = int(os.environ.get("TREADLE_TEST_KILLS", "20"))

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[Sandbox]:
    box = Sandbox(tmp_path)
    yield box
    box.close()


@pytest.mark.parametrize("server", [False, True], ids=["driver", "driver-and-server"])
@pytest.mark.parametrize("workflow", ["terasort", "kmeans"])
def test_a_run_killed_again_and_again_ends_with_the_same_bytes(sandbox: Sandbox, workflow: str, server: bool) -> None:
    inputs = write_inputs(sandbox.root / "data")[workflow]
    expected = undisturbed(sandbox, workflow, inputs)
    chance = random.Random(f"{workflow} {server}")
    target = sandbox.root / "disturbed"
    sandbox.submit(f"{workflow}.yaml", "shaken", target=target, log=sandbox.log.path, seconds=0.2, **inputs)
    since = 0.0
    for _ in range(KILLS):
        first = sandbox.wait_for_task(since)
        if first is None:
            break
        if since:
            sandbox.note_restart(first)
        time.sleep(max(0.0, first + chance.uniform(0.05, 0.5) - time.monotonic()))
        sandbox.kill(server=server)
        since = time.monotonic()
        sandbox.resume("shaken")
    done = sandbox.treadle("watch", "shaken")
    assert done.returncode == 0, done.stderr
    assert digest(target) == expected
    assert unexcused(sandbox.log, [(kill, kill) for kill in sandbox.kills]) == []
    assert len(sandbox.kills) == KILLS
    median = statistics.median(sandbox.restarts)
    print(f"{workflow}: {len(sandbox.kills)} kills; first task after {median:.2f} s (median)")  # noqa: T201
    assert median <= (10 if server else 6)
