"""Lost and damaged blocks are recomputed. Objects from another deployment are refused."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from e2e.project import Project, project


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    with project(tmp_path_factory.mktemp("lost")) as made:
        yield made


def stages(here: Project, run: str) -> dict[str, Any]:
    made = {"type": "map", "input": {"range": 6, "partitions": 6}, "per": "partition", "uses": "functions:block"}
    total = {"type": "map", "input": "wait", "per": "partition", "uses": "functions:total_once"}
    return {
        "make": made | {"with": {"log": str(here.root / f"{run}.log")}},
        "wait": {"type": "barrier", "input": "make"},
        "total": total | {"with": {"gate": str(here.root / f"{run}.gate")}, "retry": {"maximumAttempts": 1}},
    }


def failed_run(here: Project, run: str) -> list[Path]:
    """A run that failed after its first stage. Returns the files of that stage's blocks."""
    done = here.run(run, stages(here, run))
    assert done.returncode == 1, done.stderr
    (here.root / f"{run}.gate").touch()
    files = sorted(path for path in (here.home.host_root / run).rglob("*") if path.is_file())
    assert len(files) == 6
    return files


def starts(here: Project, run: str) -> Counter[str]:
    return Counter(note[2] for note in here.notes(f"{run}.log"))


def finished(here: Project, run: str) -> None:
    done = here.treadle("resume", run)
    assert done.returncode == 0, done.stderr
    assert here.records(run, "total") == [100_000 * i for i in range(6)]


def test_exactly_the_damaged_or_missing_blocks_are_recomputed(here: Project) -> None:
    files = failed_run(here, "damaged")
    here.kill_driver()
    files[0].unlink()
    with open(files[2], "r+b") as file:
        file.truncate(1000)
    with open(files[4], "r+b") as file:
        file.seek(5000)
        file.write(b"\xff" * 8)
    finished(here, "damaged")
    assert starts(here, "damaged") == {"0": 2, "1": 1, "2": 2, "3": 1, "4": 2, "5": 1}


def test_shared_memory_is_rebuilt_after_a_reboot(here: Project) -> None:
    failed_run(here, "rebooted")
    here.kill_driver()
    shutil.rmtree(here.home.host_root)
    finished(here, "rebooted")
    assert set(starts(here, "rebooted").values()) == {2}


FORGED = ("spec", "plan", "segments/total/ledger/00000000", "bundle")
MANIFEST = "segments/make/manifest/1"


@pytest.mark.parametrize("cut", [False, True])
def test_damaged_manifest_is_named_and_rewritten(here: Project, cut: bool) -> None:
    run = f"manifest-{cut}"
    failed_run(here, run)
    here.kill_driver()
    path = here.home.store / "runs" / run / MANIFEST
    sealed = path.read_bytes()
    path.write_bytes(sealed[:-20] if cut else sealed[:-1] + bytes([sealed[-1] ^ 1]))
    done = here.treadle("resume", run)
    assert done.returncode == 0, done.stderr
    assert f"runs/{run}/{MANIFEST} is damaged; the run makes it again" in done.stderr
    assert here.records(run, "total") == [100_000 * i for i in range(6)]
    assert set(starts(here, run).values()) == {1}


def test_damaged_plan_of_a_run_that_has_begun_is_refused_with_what_to_do(here: Project) -> None:
    failed_run(here, "replanned")
    here.kill_driver()
    (here.home.store / "runs" / "replanned" / "plan").write_bytes(b"")
    done = here.treadle("resume", "replanned")
    assert done.returncode == 1
    assert "a new one may differ" in done.stderr
    assert "treadle rerun replanned" in done.stderr


def test_damaged_plan_is_rewritten_when_the_run_has_not_begun(here: Project) -> None:
    here.submit("early", stages(here, "early"), "--start-delay", "1h")
    (here.root / "early.gate").touch()
    assert here.treadle("terminate", "early", "--yes").returncode == 0
    (here.home.store / "runs" / "early" / "plan").write_bytes(b"torn")
    done = here.treadle("resume", "early")
    assert done.returncode == 0, done.stderr
    assert "runs/early/plan is damaged; the run makes it again" in done.stderr


def test_objects_that_this_deployment_did_not_write_are_refused(here: Project) -> None:
    """One object in each of several runs, by a driver that has seen none of them."""
    runs = {f"forged-{number}": kind for number, kind in enumerate(FORGED)}
    for run in runs:
        failed_run(here, run)
    here.kill_driver()
    shutil.rmtree(here.root / "cache", ignore_errors=True)
    for run, kind in runs.items():
        path = here.home.store / "runs" / run / kind
        sealed = path.read_bytes()
        path.write_bytes(sealed[:-1] + bytes([sealed[-1] ^ 1]))
        done = here.treadle("resume", run)
        assert done.returncode == 1
        assert f"runs/{run}/{kind} was not written with this deployment's key" in done.stderr
        assert "Traceback" not in done.stderr
