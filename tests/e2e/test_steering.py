"""The command line pauses, limits, cancels and terminates running runs."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from e2e.project import Project, overlaps, project
from eventually import eventually


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    with project(tmp_path_factory.mktemp("steering")) as made:
        yield made


def gated(log: Path, free: int = 4, **more: Any) -> dict[str, Any]:
    """12 partitions. All except the first few wait for the gate."""
    known = {"type": "map", "input": {"range": 12}, "batch": {"maxItems": 1}, "uses": "functions:gated"}
    return {"work": {**known, "with": {"log": str(log), "free": free}, **more}}


def open_gate(here: Project, log: str) -> None:
    (here.root / f"{log}.gate").touch()


def count(here: Project, log: str, event: str = "start") -> Counter[str]:
    return Counter(partition for what, _, partition, *_ in here.notes(log) if what == event)


def test_paused_run_ends_its_attempts_and_starts_no_more(here: Project) -> None:
    """The order reaches the stage with a heartbeat: after about a second, or several on a busy machine."""
    stages = gated(here.root / "paused.log", maxConcurrency=1)
    stages["work"] |= {
        "input": {"range": 400},
        "uses": "functions:paced",
        "with": {"log": str(here.root / "paused.log")},
    }
    here.submit("paused", stages)
    eventually(lambda: len(count(here, "paused.log")) >= 5)
    assert here.treadle("pause", "paused").returncode == 0
    eventually(lambda: at_rest(here, "paused"))
    before = count(here, "paused.log")
    assert before == count(here, "paused.log", "end")
    assert len(before) < 400
    (here.root / "paused.log.fast").touch()
    time.sleep(0.5)
    assert count(here, "paused.log") == before
    assert here.treadle("unpause", "paused").returncode == 0
    assert here.treadle("watch", "paused").returncode == 0
    assert set(count(here, "paused.log").values()) == {1}
    assert here.records("paused", "work") == list(range(400))


def at_rest(here: Project, run: str) -> bool:
    """Returns whether the run is paused and nothing of it runs any more."""
    found = here.show(run)
    return found["state"] == "paused" and all(stage["state"] != "running" for stage in found["stages"])


@pytest.mark.parametrize("verb", ["cancel", "terminate"])
def test_stopped_run_keeps_its_commits(here: Project, verb: str) -> None:
    log = f"{verb}.log"
    here.submit(verb, gated(here.root / log, maxConcurrency=1))
    eventually(lambda: len(count(here, log)) == 5)
    assert here.treadle(verb, verb, "-y").returncode == 0
    assert here.treadle("watch", verb).returncode == 6
    open_gate(here, log)
    assert here.treadle("resume", verb).returncode == 0
    assert {partition for partition, times in count(here, log).items() if times > 1} <= {"4"}
    assert here.records(verb, "work") == list(range(12))


def test_no_more_tasks_run_at_once_than_max_concurrency_and_limit_changes_it(here: Project) -> None:
    stages = gated(here.root / "limited.log", maxConcurrency=1)
    stages["work"] |= {"uses": "functions:slow", "with": {"log": str(here.root / "limited.log"), "seconds": 0.2}}
    stages["work"]["input"] = {"range": 60}
    here.submit("limited", stages)
    assert here.treadle("limit", "limited", "work", 2).returncode == 0
    moment = time.monotonic()
    assert here.treadle("watch", "limited").returncode == 0
    notes = here.notes("limited.log")
    assert overlaps([note for note in notes if float(note[4]) < moment - 1]) <= 1
    assert overlaps(notes) == 2
    assert set(count(here, "limited.log").values()) == {1}


def test_a_deadline_ends_the_run(here: Project) -> None:
    done = here.run("late", gated(here.root / "late.log", deadline="6s"))
    assert done.returncode == 1
    assert "deadline of 6 s is over" in done.stderr
    open_gate(here, "late.log")
    again = here.treadle("resume", "late")
    assert again.returncode == 0, again.stderr


def test_a_run_that_is_being_paused_when_its_driver_dies_is_paused_then(here: Project) -> None:
    here.submit("orphan", gated(here.root / "orphan.log", maxConcurrency=1))
    eventually(lambda: len(count(here, "orphan.log")) == 5)
    assert here.treadle("pause", "orphan").returncode == 0
    here.kill_driver()
    open_gate(here, "orphan.log")
    assert here.treadle("resume", "orphan", "--detach").returncode == 0
    eventually(lambda: at_rest(here, "orphan"))
    assert here.treadle("unpause", "orphan").returncode == 0
    assert here.treadle("watch", "orphan").returncode == 0
    assert here.records("orphan", "work") == list(range(12))
