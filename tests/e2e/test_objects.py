"""Shared objects of a run whose workers and driver die."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from e2e.project import Project, project
from eventually import eventually

COUNT = 12


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    with project(tmp_path_factory.mktemp("objects")) as made:
        yield made


def document(log: str) -> dict[str, Any]:
    counted = {"type": "map", "input": {"range": COUNT, "partitions": COUNT}, "uses": "functions:counted"}
    share = {"type": "map", "input": {"range": 2}, "uses": "functions:share", "objects": ["hits"]}
    loop = {"type": "loop", "state": {"n": 0}, "maxIterations": 3, "needs": ["count"], "stages": {"share": share}}
    return {
        "count": counted | {"with": {"log": log, "free": 5}, "objects": ["hits", "seen"]},
        "shares": loop,
        "last": {**share, "objects": {"hits": "read"}, "uses": "functions:seen", "needs": ["shares"]},
    }


def test_objects_count_once_when_a_worker_and_the_driver_die(here: Project) -> None:
    log = here.root / "killed.log"
    more = {
        "objects": {"hits": {"type": "counter"}, "seen": {"type": "list"}},
        "outputs": {"hits": "${{ objects.hits }}", "seen": "${{ objects.seen }}"},
    }
    here.submit("killed", document(str(log)), **more)
    eventually(lambda: sum(note[0] == "end" for note in here.notes("killed.log")) == 5)
    waiting = {note[2]: note[5] for note in here.notes("killed.log") if note[0] == "start" and int(note[2]) >= 5}
    os.kill(int(next(iter(waiting.values()))), signal.SIGKILL)
    here.kill_driver()
    (here.root / "killed.log.gate").touch()
    done = here.treadle("resume", "killed")
    assert done.returncode == 0, done.stderr
    attempts = [note for note in here.notes("killed.log") if note[0] == "start"]
    assert len(attempts) > COUNT, "an attempt was cut off after it had called the objects"
    outputs = json.loads(here.treadle("result", "killed").stdout)
    assert outputs == {"hits": 2 * COUNT - 6, "seen": list(range(COUNT))}
    assert here.records("killed", "last") == [2 * COUNT - 6] * 2
