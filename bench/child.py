"""Measures one cell in the environment of its rival. run.py starts it and reads the lines that begin with `@@`.

child.py members RIVAL MEMBERS TASKS   (TASKS: JSON list of the fields of `Task`)
child.py sort RIVAL ROUNDS FOLDER_OF_RECORDS
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness import tera
from harness.settings import BENCH_DIR, RIVALS, SORTERS, Entry
from harness.work import Task


def say(**facts: Any) -> None:
    assert sys.__stdout__ is not None
    sys.__stdout__.write("@@ " + json.dumps(facts) + "\n")
    sys.__stdout__.flush()


def measure(rival: Any, members: int, tasks: list[Task], folder: Path) -> None:
    began = time.monotonic()
    rival.start(members, folder)
    say(started=time.monotonic() - began)
    for task in tasks:
        say(seconds=rival.measure(task))


def sort(sorter: Any, rounds: int, data: Path, folder: Path) -> None:
    """Each round sorts into an empty folder. Its output is checked afterwards."""
    began = time.monotonic()
    (folder / "work").mkdir()
    sorter.start(folder / "work")
    say(started=time.monotonic() - began)
    files, expected, seconds = tera.files(data), tera.expected(data), list[float]()
    for number in range(1 + rounds):
        target = folder / f"sorted-{number}"
        target.mkdir()
        began = time.monotonic()
        sorter.sort(files, target)
        seconds.append(time.monotonic() - began)
        tera.check(target, expected)
        shutil.rmtree(target)
    say(seconds=seconds[1:])


def make(entry: Entry) -> Any:
    return getattr(importlib.import_module(entry.module), entry.name)()


def main(what: str, name: str, count: str, rest: str) -> int:
    runner: Any = None
    (BENCH_DIR / "tmp").mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=BENCH_DIR / "tmp", prefix="c", ignore_cleanup_errors=True) as folder:
        try:
            runner = make(RIVALS[name] if what == "members" else SORTERS[name])
            if what == "members":
                measure(runner, int(count), [Task(**task) for task in json.loads(rest)], Path(folder))
            else:
                sort(runner, int(count), Path(rest), Path(folder))
            return 0
        except BaseException as error:  # noqa: BLE001 - every error is reported
            traceback.print_exc()
            say(error=f"{type(error).__name__}: {error}".strip()[:600])
            return 1
        finally:
            _quietly(getattr(runner, "stop", lambda: None))


def _quietly(stop: Callable[[], None]) -> None:
    try:
        stop()
    except BaseException:  # noqa: BLE001 - the figures are reported already
        traceback.print_exc()


if __name__ == "__main__":
    code = main(*sys.argv[1:5])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # libraries with their own threads may not end
