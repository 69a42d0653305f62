"""Acts of user code against its worker, and the result of the run."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from e2e.project import Project, project
from eventually import eventually

PASSWORD = "correct-horse-battery"


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    with project(tmp_path_factory.mktemp("failures"), TREADLE_SECRET_PW=PASSWORD) as made:
        yield made


def each(uses: str, count: int = 6, output: str = "", given: Any = None, **more: Any) -> dict[str, Any]:
    """A map with a partition for each number. `given` goes into `with`."""
    known = {"type": "map", "input": {"range": count}, "batch": {"maxItems": 1}, "uses": f"functions:{uses}"}
    more |= {"with": given} if given else {}
    return known | more | ({"output": {"uri": f"out/{output}", "format": "jsonl"}} if output else {})


def test_a_worker_that_dies_or_is_mistreated_costs_nothing_but_time(here: Project) -> None:
    log = str(here.root / "violence.log")
    stages: dict[str, Any] = {
        how.replace(".", ""): each("ends", output=how, given={"how": how, "log": log})
        for how in ("exit", "sys.exit", "segfault", "kill")
    }
    for uses in ("chatters", "forks", "reads_stdin", "moves"):
        stages[uses] = each(uses, output=uses)
    done = here.run("violence", stages)
    assert done.returncode == 0, done.stderr
    for uri in ("exit", "sys.exit", "segfault", "kill", "chatters", "forks", "moves"):
        assert here.written(f"out/{uri}") == list(range(6)), uri
    assert here.written("out/reads_stdin") == [""] * 6
    starts = Counter((stage, partition) for _, stage, partition, *_ in here.notes("violence.log"))
    assert {key: times for key, times in starts.items() if times > 1 and key[1] != "3"} == {}


def test_each_failure_class_is_reported_by_its_name(here: Project) -> None:
    soon = {"maximumAttempts": 2, "initialInterval": "10ms"}
    stages = {
        "spin": each("spins", timeout="700ms", retry=soon),
        "large": each("allocates", 1, memory={"start": "64MiB", "max": "128MiB"}, retry=soon, given={"mebibytes": 400}),
        "final": each("refuses", retry={**soon, "nonRetryableErrorTypes": ["ValueError"]}, given={"of": 6}),
    }
    ways: Counter[tuple[str, str]] = Counter()
    for name, stage in stages.items():  # one run each, as the first final failure would stop the others
        run = f"named-{name}"
        assert here.run(run, {name: stage}).returncode == 1
        done = here.treadle("logs", run, "-o", "json")
        records = [json.loads(line) for line in done.stdout.splitlines()]
        ways.update((record["segment"], record["failure"]) for record in records if record["failure"])
    assert ways == {("spin", "timed out"): 2, ("large", "out of memory"): 2, ("final", "user error"): 1}


def test_memory_grows_for_the_attempt_that_ran_out_of_it(here: Project) -> None:
    memory = {"start": "64MiB", "max": "1GiB"}
    stages = {
        "grow": each("allocates", 2, "grown", memory=memory, retry={"maximumAttempts": 5}, given={"mebibytes": 300})
    }
    done = here.run("grown", stages)
    assert done.returncode == 0, done.stderr
    assert here.written("out/grown") == [300 * 256, 300 * 256 + 1]


@pytest.mark.parametrize(("run", "tolerated", "code"), [("within", (2, "34%"), 0), ("beyond", (1, "33%"), 1)])
def test_failed_records_are_tolerated_up_to_the_boundary(
    here: Project, run: str, tolerated: tuple[int, str], code: int
) -> None:
    stage = each("refuses", batch={"maxItems": 3}, given={"of": 3}, retry={"initialInterval": "10ms"})
    stages = {
        name: stage | {"toleratedFailures": bound, "failedItems": {"uri": f"failed/{run}/{name}"}}
        for name, bound in zip(("count", "share"), tolerated, strict=True)
    }
    done = here.run(run, stages)
    assert done.returncode == code, done.stderr
    for name in stages:
        if code:
            assert not list((here.root / f"failed/{run}/{name}").glob("part-*"))
        else:
            assert [item["record"] for item in here.written(f"failed/{run}/{name}")] == [0, 3]


def test_a_secret_is_nowhere_but_in_the_function(here: Project) -> None:
    stage = each("tells", 2, retry={"maximumAttempts": 1}, given={"secret": "${{ secrets.pw }}"})
    kept = stage | {"toleratedFailures": 2, "failedItems": {"uri": "failed/secret"}}
    done = here.run("secret", {"fails": stage, "kept": kept}, secrets=["pw"])
    logs = here.treadle("logs", "secret")
    assert (done.returncode, logs.returncode) == (1, 0)
    assert "cannot log in with ***pw***" in logs.stdout
    assert PASSWORD not in done.stdout + done.stderr + logs.stdout
    assert len(here.written("failed/secret")) == 2
    files = [path for path in here.root.rglob("*") if path.is_file()]
    assert len(files) > 10
    assert [path for path in files if PASSWORD.encode() in path.read_bytes()] == []


@pytest.mark.parametrize("assume", ["retry", "done"])
def test_an_attempt_cut_off_is_not_repeated_unless_a_person_says_so(here: Project, assume: str) -> None:
    run, log = f"once-{assume}", here.root / f"once-{assume}.log"
    stage = each("gated", 4, idempotent=False, given={"log": str(log), "free": 1})
    here.submit(run, {"work": stage})
    eventually(lambda: sum(note[0] == "start" for note in here.notes(log.name)) == 3)
    cut = {note[2] for note in here.notes(log.name)} - {"0"}
    here.kill_driver()
    (here.root / f"{log.name}.gate").touch()
    done = here.treadle("resume", run)
    assert done.returncode == 1
    assert "unknown outcome" in done.stderr
    assert done.stderr.endswith(f"  Once you know what it did: treadle resume {run} --assume done|retry\n")
    assert here.treadle("resume", run, "--assume", assume).returncode == 0
    starts = Counter(note[2] for note in here.notes(log.name) if note[0] == "start")
    assert {partition for partition, times in starts.items() if times > 1} == (cut if assume == "retry" else set())
