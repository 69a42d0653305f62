"""Loops compared with their floor: k-means and logistic regression, 8 partitions, 2 processes. Prints JSON lines.

    python bench/loops.py [--rounds 5] [--only kmeans] [--command]

For each example, in turn and repeatedly, so that other load on the machine affects all alike:

* `pool`: the floor. `multiprocessing.Pool(2)`, the partitions resident in its processes, the same functions folded in
  the same order, nothing stored.
* `single`: the same in one process; its ideal on two cores is half of that.
* `direct` and `storage`: the example itself, run by the engine on two local processes, blocks in shared memory or (with
  `exchange: storage`) in a file store. Timed is the loop as a node of the run: from its first look at the store until
  its result is written there.

`--command` adds `treadle run` on the embedded server: the whole command, and in it the loop by the times of its
ledger's files. The final states of all of them are compared bit for bit; a difference ends the program.
"""

from __future__ import annotations

import os

os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")  # before numpy

import argparse
import asyncio
import json
import multiprocessing
import platform
import runpy
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.pool import Pool
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from treadle.client.testing import Engine
from treadle.dsl.document.workflow_files import load
from treadle.dsl.model import Spec
from treadle.dsl.validation.inputs import resolve_inputs
from treadle.executors.local.executor import LocalExecutor
from treadle.orchestrator.dispatcher.driver_context.run_context import RunContext
from treadle.orchestrator.dispatcher.orders import NodeOrder
from treadle.orchestrator.dispatcher.segments.execute_segment import Desk
from treadle.orchestrator.dispatcher.tasks.dataset_scope import partition_inputs
from treadle.orchestrator.plan.plan import LoopNode
from treadle.orchestrator.scheduler.instructions import Event
from treadle.primitives import sealing
from treadle.primitives.blocks import Blocks
from treadle.primitives.shuffling import seeds
from treadle.primitives.stores.shared_memory import HostFolder
from treadle.primitives.stores.store import Store

EXAMPLES = Path(__file__).parents[1] / "examples"
PARTITIONS = 8
PROCESSES = 2


@dataclass(frozen=True)
class Workload:
    """One example, with the parts of its loop."""

    example: str
    loop: str
    state: str
    work: str
    """Function of a partition and the state. `argument`: the state's name in it."""
    argument: str
    combine: str
    finish: str
    inputs: dict[str, Any]
    generate: Callable[[Path, dict[str, Any]], None]
    iterations: int
    path: str = ""
    """Stage path of the work, with the iteration as {}. It seeds the random numbers."""
    seed: int = 0
    arguments: Callable[[int], dict[str, Any]] = field(default=lambda _: {})


def _points(folder: Path, generate: dict[str, Any]) -> None:
    generate["write_points"](folder, PARTITIONS, 50_000, 20, centres=25)


def _rows(folder: Path, generate: dict[str, Any]) -> None:
    generate["write_rows"](folder, PARTITIONS, 50_000, 20)


KMEANS = Workload(
    example="kmeans",
    loop="lloyd",
    state="centroids",
    work="assign",
    argument="centroids",
    combine="add_partials",
    finish="new_centroids",
    inputs={"k": 25, "tol": -1.0, "iterations": 20},
    generate=_points,
    iterations=20,
)
LOGISTIC = Workload(
    example="logistic",
    loop="train",
    state="weights",
    work="descend",
    argument="weights",
    combine="add",
    finish="mean",
    inputs={"rate": 0.5, "batch": 256, "tol": -1.0, "epochs": 20},
    generate=_rows,
    iterations=20,
    path="train[{}].descend",
    seed=7,
    arguments=lambda iteration: {"rate": 0.5 / iteration, "batch": 256},
)


# -- the floor


class Floor:
    """The loop without an engine. Made once in each process; its partitions stay."""

    def __init__(self, workload: Workload, folder: Path) -> None:
        sys.path.insert(0, str(EXAMPLES / workload.example))
        names = runpy.run_path(str(EXAMPLES / workload.example / f"{workload.example}.py"))
        self._workload = workload
        self._work, self._combine, self._finish = (
            names[name] for name in (workload.work, workload.combine, workload.finish)
        )
        self._parts = [np.load(file) for file in sorted(folder.glob("*.npy"))]

    def part(self, index: int, iteration: int, state: Any) -> Any:
        workload = self._workload
        more = workload.arguments(iteration)
        if workload.path:
            path = workload.path.format(iteration)
            more["context"] = SimpleNamespace(rng=seeds.rng(workload.seed, path, index))
        return self._work(self._parts[index], **{workload.argument: state}, **more)

    def run(self, start: Any, work: Callable[[list[tuple[int, int, Any]]], Any]) -> Any:
        """Run every iteration. `work` maps (partition, iteration, state) to partials, in order."""
        state = start
        for iteration in range(1, self._workload.iterations + 1):
            total, *rest = work([(index, iteration, state) for index in range(PARTITIONS)])
            for partial in rest:
                total = self._combine(total, partial)
            state = self._finish(total, old=state).value
        return state

    def alone(self, tasks: list[tuple[int, int, Any]]) -> Iterator[Any]:
        return (self.part(*task) for task in tasks)


_floor: list[Floor] = []


def _open_floor(name: str, folder: Path) -> None:
    _floor.append(Floor({"kmeans": KMEANS, "logistic": LOGISTIC}[name], folder))


def _floor_part(task: tuple[int, int, Any]) -> Any:
    return _floor[0].part(*task)


def _pooled(pool: Pool) -> Callable[[list[tuple[int, int, Any]]], Any]:
    return lambda tasks: pool.map(_floor_part, tasks, chunksize=1)


# -- the engine


class TimedEngine(Engine):
    """Records the duration of the run's loop, and the state before and after it."""

    seconds = 0.0

    async def _execute(self, run: RunContext, order: NodeOrder, desk: Desk) -> Event:
        begin = time.perf_counter()
        event = await super()._execute(run, order, desk)
        if isinstance(run.plan.graph.node(order.node), LoopNode):
            self.seconds = time.perf_counter() - begin
        return event

    def states(self, run_id: str, workload: Workload) -> tuple[Any, Any]:
        """The loop's state before the first iteration and after the last."""
        run = self.site.open(run_id)
        node = run.plan.graph.node(workload.loop)
        assert isinstance(node, LoopNode)
        first = node.state[workload.state]
        assert first is not None
        blocks = Blocks(self.site.store, run_id, HostFolder(self.site.host_root) if self.site.host_root else None)
        found = []
        for data in (run.scope.data(first, run.loop), run.loop(workload.loop).data[workload.state]):
            [[one]] = partition_inputs(data, run.manifest)[0].inputs
            [value] = blocks.get(one)
            found.append(value)
        return found[0], found[1]


@dataclass
class Bench:
    """One example's data, with all variants that run on it."""

    workload: Workload
    folder: Path
    key: bytes
    engine: TimedEngine
    runner: asyncio.Runner

    @property
    def data(self) -> Path:
        return self.folder / self.workload.example

    def spec(self, exchange: str) -> Spec:
        document = load(EXAMPLES / self.workload.example / f"{self.workload.example}.yaml").require()
        settings = document.defaults.model_copy(update={"exchange": exchange})
        return document.model_copy(update={"defaults": settings})

    def inputs(self) -> dict[str, Any]:
        name = {"kmeans": "points", "logistic": "rows"}[self.workload.example]
        return {name: f"{self.data}/*.npy", **self.workload.inputs}

    def engine_run(self, exchange: str) -> tuple[float, float, Any, Any]:
        """(seconds of the loop, seconds of the run, first state, last state)."""
        spec = self.spec(exchange)
        begin = time.perf_counter()
        roots = [EXAMPLES / self.workload.example]
        run = self.engine.submit(spec, resolve_inputs(spec, self.inputs()), base=self.folder, roots=roots)
        self.runner.run(self.engine.run(run))
        whole = time.perf_counter() - begin
        return self.engine.seconds, whole, *self.engine.states(run, self.workload)

    def rounds(self, count: int) -> dict[str, list[float]]:
        workload = self.workload
        floor = Floor(workload, self.data)
        times: dict[str, list[float]] = {}
        start = self.engine_run("auto")[2]
        args = (workload.example, self.data)
        with multiprocessing.get_context("spawn").Pool(PROCESSES, _open_floor, args) as pool:
            answers = [floor.run(start, _pooled(pool)) for _ in range(2)]  # the first brings the partitions in
            for _ in range(count):
                with _timed(times, "pool"):
                    answers.append(floor.run(start, _pooled(pool)))
                for exchange, name in (("auto", "direct"), ("storage", "storage")):
                    seconds, whole, _, last = self.engine_run(exchange)
                    times.setdefault(name, []).append(seconds)
                    times.setdefault(f"{name} run", []).append(whole)
                    answers.append(last)
                with _timed(times, "single"):
                    answers.append(floor.run(start, floor.alone))
        assert len({answer.tobytes() for answer in answers}) == 1, "the results differ"
        return times


@contextmanager
def _timed(times: dict[str, list[float]], name: str) -> Iterator[None]:
    begin = time.perf_counter()
    yield
    times.setdefault(name, []).append(time.perf_counter() - begin)


# -- the whole command


def command_rounds(bench: Bench, count: int) -> dict[str, list[float]]:
    """`treadle run` in a new home. The first run, which starts the server, does not count."""
    home = bench.folder / "home"
    environment = {**os.environ, "TREADLE_HOME": str(home)}
    treadle = [str(Path(sys.executable).with_name("treadle"))]
    inputs = [part for name, value in bench.inputs().items() for part in ("-i", f"{name}={value}")]
    document = str(EXAMPLES / bench.workload.example / f"{bench.workload.example}.yaml")
    times: dict[str, list[float]] = {}
    try:
        for number in range(count + 1):
            begin = time.perf_counter()
            subprocess.run(
                [*treadle, "run", document, *inputs], env=environment, cwd=bench.folder, check=True, capture_output=True
            )
            if number:
                times.setdefault("command", []).append(time.perf_counter() - begin)
                times.setdefault("command loop", []).append(_loop_by_files(home, bench.workload.loop))
    finally:
        subprocess.run([*treadle, "dev", "down"], env=environment, check=False, capture_output=True)
    return times


def _loop_by_files(home: Path, loop: str) -> float:
    """Seconds from the first entry of the newest run's ledger to its result, by the times of the files."""
    result = max(home.rglob(f"segments/{loop}/result"), key=lambda file: file.stat().st_mtime_ns)
    opened = min((result.parent / "ledger").iterdir())
    return (result.stat().st_mtime_ns - opened.stat().st_mtime_ns) / 1e9


# -- report


def report(workload: Workload, times: dict[str, list[float]]) -> None:
    medians = {name: statistics.median(found) for name, found in times.items()}
    bases = {"pool": times["pool"], "single / 2": [seconds / 2 for seconds in times["single"]]}
    for name, found in times.items():
        line: dict[str, Any] = {"workload": workload.example, "what": name, "median_s": round(medians[name], 4)}
        line |= {"min_s": round(min(found), 4), "max_s": round(max(found), 4), "runs": len(found)}
        if name in ("direct", "storage", "command loop"):
            for floor, base in bases.items():
                line[f"of {floor}"] = round(medians[name] / statistics.median(base), 3)
                line[f"of {floor}, best runs"] = round(min(found) / min(base), 3)
        print(json.dumps(line), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=["kmeans", "logistic"])
    parser.add_argument("--command", action="store_true")
    arguments = parser.parse_args()
    about = {"python": platform.python_version(), "numpy": np.__version__, "cores": len(os.sched_getaffinity(0))}
    print(json.dumps({"partitions": PARTITIONS, "processes": PROCESSES, **about, "load": os.getloadavg()[0]}))
    with (
        tempfile.TemporaryDirectory(prefix="loops-") as folder,
        tempfile.TemporaryDirectory(prefix="loops-", dir="/dev/shm") as host,
        asyncio.Runner() as runner,
    ):
        key = sealing.load_or_create_key(Path(folder) / "key")
        executor = LocalExecutor(run_key=lambda run: sealing.run_key(key, run), slots=PROCESSES, host_root=host)
        runner.run(executor.start())
        engine = TimedEngine(Store.open(f"file://{folder}/store"), executor, key, Path(host))
        for workload in (KMEANS, LOGISTIC):
            if arguments.only in (None, workload.example):
                bench = Bench(workload, Path(folder), key, engine, runner)
                workload.generate(bench.data, runpy.run_path(str(EXAMPLES / workload.example / "generate.py")))
                times = bench.rounds(arguments.rounds)
                if arguments.command:
                    times |= command_rounds(bench, arguments.rounds)
                report(workload, times)
        runner.run(executor.stop())


if __name__ == "__main__":
    main()
