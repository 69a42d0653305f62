"""Measures all rivals, one after the other, and writes a JSON line for each figure.

python bench/run.py [--quick] [--only direct,Redis] [--members 2,8] [--what members,sort] [--results FILE]
"""

from __future__ import annotations

import argparse
import ctypes
import datetime
import itertools
import json
import os
import select
import shutil
import signal
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from harness import machine, plan, tera
from harness.settings import BENCH, BENCH_DIR, RESULTS, RIVALS, SHARED_MEMORY, SORTERS, Entry
from harness.work import Task

_CHILD_SUBREAPER = 36
"""The option of prctl: orphans of a child become this process's children, so that it can end them."""
_MEMORY_SHARE = 0.6
"""Share of the available memory for a reduce or broadcast and its copies."""


class Results:
    """The file of figures: one JSON object in each line."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")

    def write(self, **facts: Any) -> None:
        line = json.dumps(facts)
        with self._path.open("a") as file:
            file.write(line + "\n")
        print(_brief(facts), flush=True)


def _brief(facts: dict[str, Any]) -> str:
    where = " ".join(str(facts[key]) for key in ("rival", "members", "operation", "size") if key in facts)
    if "median" in facts:
        return f"{where}: median {facts['median'] * 1e3:.3f} ms, least {facts['min'] * 1e3:.3f} ms"
    return f"{where}: {facts.get('error') or facts.get('skipped') or 'measured on ' + json.dumps(facts)}"


def run_cell(cell: plan.Cell, results: Results, seconds: float) -> None:
    """Run all tasks of a cell. When one fails, the others continue in a new child."""
    where = {"rival": cell.rival, "members": cell.members}
    if cell.skipped:
        results.write(**where, skipped=cell.skipped)
        return
    tasks, end = cell.tasks, time.monotonic() + seconds
    while tasks:
        reason = "" if _fits(tasks[0], cell.members) else "it does not fit the memory"
        reason = reason if time.monotonic() < end else "no time was left"
        if reason:
            results.write(**where, **_of(tasks[0]), skipped=reason)
            tasks = tasks[1:]
        else:
            fitting = list(itertools.takewhile(lambda task: _fits(task, cell.members), tasks))
            tasks = tasks[_measure(where, fitting, results, end - time.monotonic()) :]


def _measure(where: dict[str, Any], tasks: list[Task], results: Results, seconds: float) -> int:
    """Run in one child. Returns the number of finished tasks: up to the first that failed, or all when nothing can
    start."""
    started, done = False, 0
    arguments = ["members", where["rival"], str(where["members"]), json.dumps([asdict(task) for task in tasks])]
    for said in child(RIVALS[where["rival"]], arguments, seconds):
        if "started" in said:
            started = True
        elif not started:
            results.write(**where, **said)
            return len(tasks)
        elif done < len(tasks):
            results.write(**where, **_of(tasks[done]), **_summary(said))
            done += 1
    return max(1, done)


def _of(task: Task) -> dict[str, Any]:
    return {"operation": task.operation, "size": task.size}


def run_sort(sort: plan.Sort, results: Results, seconds: float) -> None:
    data = tera.make(BENCH_DIR, sort.size)
    for said in child(SORTERS[sort.rival], ["sort", sort.rival, str(sort.rounds), str(data)], seconds):
        if "started" not in said:
            results.write(rival=sort.rival, operation="terasort", size=sort.size, **_summary(said))


def _fits(task: Task, members: int) -> bool:
    """Returns whether it fits: each member's array, its copy in transit and a partial sum; in a broadcast, a copy for
    each at most."""
    with open("/proc/meminfo") as file:
        available = int(file.read().partition("MemAvailable:")[2].split()[0]) * 1024
    copies = {"reduce": 3 * members, "broadcast": members + 3}.get(task.operation, 0)
    return copies * task.size < _MEMORY_SHARE * available


def _summary(said: dict[str, Any]) -> dict[str, Any]:
    if "error" in said:
        return said
    seconds = sorted(said["seconds"])
    kept = {"seconds": [round(one, 7) for one in said["seconds"]]} if len(seconds) <= 100 else {}
    return {
        "rounds": len(seconds),
        "median": statistics.median(seconds),
        "min": seconds[0],
        "p99": seconds[-(len(seconds) // 100) - 1],
        **kept,
    }


def child(entry: Entry, arguments: list[str], seconds: float) -> Iterator[dict[str, Any]]:
    """Yields the child's records, and an error when it ends or hangs without one."""
    if not Path(entry.python).exists():
        yield {"error": "no environment: run bench/environments.py first"}
        return
    log = BENCH_DIR / "logs" / f"{'-'.join(arguments[:3]).replace(' ', '-')}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as file, tempfile.TemporaryDirectory(prefix="treadle-bench-", dir=SHARED_MEMORY) as shared:
        process = subprocess.Popen(
            [entry.python, str(BENCH / "child.py"), *arguments],
            stdout=subprocess.PIPE,
            stderr=file,
            env=_environment(shared),
        )
        try:
            yield from _answers(process, time.monotonic() + seconds)
        finally:
            process.kill()
            process.wait()
            end_descendants()


def _answers(process: subprocess.Popen[bytes], end: float) -> Iterator[dict[str, Any]]:
    assert process.stdout is not None
    buffer, failed = b"", False
    while True:
        ready, _, _ = select.select([process.stdout], [], [], max(0.0, end - time.monotonic()))
        data = os.read(process.stdout.fileno(), 1 << 16) if ready else b""
        if not data:
            break
        *lines, buffer = (buffer + data).split(b"\n")
        for line in lines:
            if line.startswith(b"@@ "):
                said: dict[str, Any] = json.loads(line[3:])
                failed = failed or "error" in said
                yield said
    if not ready:
        yield {"error": "not done in time"}
    elif not failed and process.wait(30) != 0:
        yield {"error": f"ended with code {process.returncode}"}


def _environment(shared: str) -> dict[str, str]:
    """One thread for each process, files below BENCH_DIR, no telemetry."""
    (BENCH_DIR / "tmp").mkdir(exist_ok=True)
    one = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    return {
        **os.environ,
        **one,
        "PYTHONPATH": os.pathsep.join(filter(None, [str(BENCH), os.environ.get("PYTHONPATH")])),
        "PYTHONUNBUFFERED": "1",
        "TMPDIR": str(BENCH_DIR / "tmp"),
        "BENCH_DIR": str(BENCH_DIR),
        "BENCH_SHARED_MEMORY": shared,
        "DO_NOT_TRACK": "1",
    }


def end_descendants() -> None:
    """End all processes that a child left running: first by request, then by a kill."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        for _ in range(30):
            left = _descendants(os.getpid())
            for process in left:
                with suppress(OSError):
                    os.kill(process, sign)
            with suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            if not left:
                return
            time.sleep(0.1)


def _descendants(root: int) -> list[int]:
    parents: dict[int, list[int]] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError), open(f"/proc/{name}/stat") as file:
            parents.setdefault(int(file.read().rpartition(")")[2].split()[1]), []).append(int(name))
    found, todo = list[int](), [root]
    while todo:
        below = parents.get(todo.pop(), [])
        found += below
        todo += below
    return found


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer sizes and rounds: a quarter of an hour")
    parser.add_argument("--only", default=",".join(RIVALS), help="rivals, comma-separated")
    parser.add_argument("--members", default="", help="numbers of members, comma-separated")
    parser.add_argument("--what", default="members,sort")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--seconds", type=float, default=0, help="for one cell at most; 120, or 1200 in a full run")
    parser.add_argument("--minutes", type=float, default=0, help="begin no further cell then")
    return parser.parse_args()


def main() -> None:
    chosen = options()
    end = time.monotonic() + 60 * (chosen.minutes or 600)
    ctypes.CDLL(None).prctl(_CHILD_SUBREAPER, 1, 0, 0, 0)
    seconds = chosen.seconds or (120 if chosen.quick else 1200)
    results = Results(chosen.results)
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    results.write(date=now, quick=chosen.quick, **machine.facts())
    only, counts = chosen.only.split(","), [int(count) for count in chosen.members.split(",") if count]
    cells = [one for one in plan.cells(quick=chosen.quick) if one.rival in only]
    sorts = [one for one in plan.sorts(quick=chosen.quick) if one.rival in only]
    try:
        for sort in sorts if "sort" in chosen.what else []:
            run_sort(sort, results, seconds)
        for cell in cells if "members" in chosen.what else []:
            if not counts or cell.members in counts:
                run_cell(cell if time.monotonic() < end else cell._replace(skipped="time was up"), results, seconds)
    finally:
        end_descendants()
        shutil.rmtree(BENCH_DIR / "tmp", ignore_errors=True)


if __name__ == "__main__":
    main()
