"""Logs and errors of attempts can be read while their stage runs, outlive the driver, and are private."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e.project import Project, project
from eventually import eventually

FUNCTIONS = """
import os, time
from treadle.executors import Context

def speaks(x: int, gate: str, context: Context) -> int:
    if x == 0 and context.attempt == 1:
        print("words of the first attempt")
        raise RuntimeError("the first attempt failed")
    while x and not os.path.exists(gate):
        time.sleep(0.02)
    return x
"""


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    with project(tmp_path_factory.mktemp("meanwhile")) as made:
        (made.root / "speaking.py").write_text(FUNCTIONS)
        yield made


def test_errors_and_prints_are_seen_meanwhile_and_outlive_the_driver(here: Project) -> None:
    gate = here.root / "gate"
    known = {"type": "map", "input": {"range": 3}, "batch": {"maxItems": 1}, "uses": "speaking:speaks"}
    here.submit("long", {"work": {**known, "with": {"gate": str(gate)}, "output": {"uri": "out", "format": "jsonl"}}})
    eventually(lambda: "words of the first attempt" in here.treadle("logs", "long").stdout, 60)
    assert here.show("long")["state"] == "running"
    here.kill_driver()
    logs = here.treadle("logs", "long").stdout
    assert "words of the first attempt" in logs
    assert "RuntimeError: the first attempt failed" in logs
    gate.touch()
    assert here.treadle("resume", "long").returncode == 0
    assert here.written("out") == [0, 1, 2]


def test_everything_in_a_home_and_in_shared_memory_is_private(here: Project) -> None:
    """Checked after the run above. The outputs are the user's own."""

    def is_open(path: Path) -> bool:
        return path.exists() and bool(path.stat().st_mode & 0o077)

    folders = (here.home.path, here.home.host_root, here.root / "cache" / f"treadle-{here.root.stat().st_uid}")
    everything = [path for folder in folders for path in (folder, *folder.rglob("*"))]
    inside_bundles = [path for path in everything if "modules" in path.parts]
    assert len(everything) > 30
    assert [path for path in everything if is_open(path) and path not in inside_bundles] == []
