"""Where the time of a small run goes: its hops from the document to the result, each with its floor.

    python bench/hops.py [--runs 40]

A map of one task, on a driver that is up. Client and driver record the spans that every user gets (docs/operating.md,
Traces). `a .. b` is the time between two hops, in which messages pass through Temporal. Prints medians in milliseconds.
A floor is the least work of a hop, done alone in the same run: a document parsed, a small durable file, a message to a
process and back, a workflow of Temporal with one local activity.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import yaml
from harness import traced
from harness.bench_home import bench_home
from temporalio import activity, workflow
from temporalio.worker import Worker

from treadle.client import Client
from treadle.client.environment import ClientEnvironment
from treadle.orchestrator import embedded
from treadle.orchestrator.environment.home import Home
from treadle.primitives.stores.atomic_files import create_file

WARM = 5
DOCUMENT = """apiVersion: treadle/v1
name: hops
stages:
  one: {type: map, input: {range: 1}, uses: "hop:same"}
"""
FUNCTION = "def same(value):\n    return value\n"
FLOORS = {
    "read document": "parse",
    "write submission": "file",
    "start .. open run": "workflow",
    "open run": "file",
    "tasks one": "message",
    "commit one": "file",
    "close one": "file",
    "node one .. wait": "workflow",
}
"""Hop -> the floor beside it. That of Temporal is for both of its hops together."""


@activity.defn
async def nothing() -> None:
    return


@workflow.defn(sandboxed=False)
class Bare:
    """What Temporal alone takes for a run."""

    @workflow.run
    async def run(self) -> None:
        await workflow.execute_local_activity(nothing, start_to_close_timeout=timedelta(minutes=1))


def median(times: list[float]) -> float:
    return statistics.median(times) * 1000


def timed(work: Callable[[], object], rounds: int) -> float:
    """The median of a call, in milliseconds."""
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return median(times)


def file_floor(folder: Path, rounds: int) -> float:
    """A small durable file."""
    return timed(lambda: create_file(folder / uuid.uuid4().hex, [b"x" * 500]), rounds)


def message_floor(rounds: int) -> float:
    """A message to a process and its answer."""
    ours, theirs = socket.socketpair()
    if not os.fork():
        ours.close()
        while data := theirs.recv(4096):
            theirs.send(data)
        os._exit(0)
    theirs.close()
    found = timed(lambda: (ours.send(b"x" * 500), ours.recv(4096)), rounds)
    ours.close()
    os.wait()
    return found


async def workflow_floor(home: Home, rounds: int) -> float:
    """A workflow of Temporal with one local activity, from its start to its result."""
    client, times = await ClientEnvironment(None, home.path).connect(), list[float]()
    async with Worker(client, task_queue="hops", workflows=[Bare], activities=[nothing]):
        for _ in range(rounds):
            began = time.perf_counter()
            await client.execute_workflow(Bare.run, id=uuid.uuid4().hex, task_queue="hops")
            times.append(time.perf_counter() - began)
    return median(times)


def hops_of(spans: Path) -> dict[str, float]:
    """The median of each hop, and of the time between two hops of which the second waits for the first."""
    runs: dict[str, dict[str, tuple[int, int]]] = {}
    for line in spans.read_text().splitlines():
        run, name, began, ended = json.loads(line)
        runs.setdefault(run, {})[name] = began, ended
    measured = list(runs.values())[WARM:]
    found = {name: [(run[name][1] - run[name][0]) / 1e9 for run in measured] for name in measured[0]}
    found["start .. open run"] = [(run["open run"][0] - run["start"][0]) / 1e9 for run in measured]
    found["node one .. wait"] = [(run["wait"][1] - run["node one"][1]) / 1e9 for run in measured]
    return {name: median(times) for name, times in found.items() if name not in ("start", "wait")}


def measured_runs(home: Home, folder: Path, spans: Path, runs: int) -> float:
    """The median of the runs, in milliseconds. Their spans go to the file."""
    command = [sys.executable, str(Path(traced.__file__)), str(spans), "treadle.orchestrator.temporal.driver"]
    driver = subprocess.Popen([*command, "--embedded", "--home", str(home.path)], stderr=subprocess.DEVNULL)
    while not (state := embedded.running_driver(home)) or not state.ready:
        time.sleep(0.05)
    with Client(home=home.path) as client:
        for _ in range(WARM):
            client.run(folder / "hops.yaml")
        whole = timed(lambda: client.run(folder / "hops.yaml"), runs)
    driver.terminate()
    driver.wait()
    return whole


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=40)
    runs = parser.parse_args().runs
    with bench_home("[default]\nslots = 2\n") as home, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "hop.py").write_text(FUNCTION)
        (folder / "hops.yaml").write_text(DOCUMENT)
        traced.record_spans(folder / "spans")
        whole = measured_runs(home, folder, folder / "spans", runs)
        hops = hops_of(folder / "spans")
        floors = {
            "parse": timed(lambda: yaml.load(DOCUMENT, yaml.CSafeLoader), runs),
            "file": file_floor(folder, runs),
            "message": message_floor(runs),
            "workflow": asyncio.run(workflow_floor(home, runs)),
        }
    print("| hop | ms | floor |\n|---|--:|--:|")
    for hop, took in hops.items():
        print(f"| {hop} | {took:.2f} | {f'{floors[FLOORS[hop]]:.2f}' if hop in FLOORS else ''} |")
    print(f"| the run, for its caller | {whole:.2f} | |")


if __name__ == "__main__":
    main()
