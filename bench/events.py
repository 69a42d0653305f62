"""Load on Kafka triggers: a real broker, the embedded Temporal server, one service, one driver.

    python bench/events.py [--events 50000] [--only batches,slow,fair,single]

* `batches`: all events wait in the topic; batches of 500, `maxActive: 8`. From the start of the service to the last
  run's end: events and runs a second, the service's memory over time, and the maximum of open runs.
* `slow`: runs of two seconds and `maxActive: 4`: the maximum of open runs.
* `fair`: a trigger whose runs take two seconds has a backlog; the waiting time of another trigger's events for their
  start, with this neighbour and without.
* `single`: one run for each event, with a 25th of the events and no limit. The driver is stopped, so that only starts
  are measured: starts a second, and the CPU time of a start in the service and in the server.

Prints a JSON line for each, and then the table of docs/triggers.md.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

sys.path.pop(0)  # else `triggers` would be this file
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from kafka import Broker, broker
from temporalio.client import Client
from triggers.installation import Execution, Installation, installation, workflow

from treadle.orchestrator import embedded

HEADERS = {"ce_specversion": b"1.0", "ce_source": b"/bench", "ce_type": b"a"}
BATCH = 500
PARTITIONS = 4


class Watched(threading.Thread):
    """A process and its memory, sampled five times a second until it ends."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.pid = pid
        self.sizes: list[int] = []

    def run(self) -> None:
        with contextlib.suppress(OSError, IndexError):
            while True:
                status = Path(f"/proc/{self.pid}/status").read_text()
                self.sizes.append(int(status.partition("VmRSS:")[2].split()[0]) // 1024)
                time.sleep(0.2)

    def cpu(self) -> float:
        """CPU seconds so far."""
        return cpu_of(self.pid)

    def figures(self) -> dict[str, int]:
        """MiB: in the middle and last third, when it is warm, and the maximum."""
        third = max(1, len(self.sizes) // 3)
        middle, last = self.sizes[third : 2 * third] or self.sizes, self.sizes[-third:]
        return {"middle": round(statistics.median(middle)), "last": round(statistics.median(last)), "most": max(last)}


def cpu_of(pid: int) -> float:
    """CPU seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def fill(kafka: Broker, topic: str, events: int) -> None:
    """Write events of 200 bytes, spread over the partitions."""
    kafka.create_topic(topic, PARTITIONS)
    kafka.create_topic(f"{topic}.dlt")
    pad = b"x" * 160
    for partition in range(PARTITIONS):
        values = (b'{"n": %d, "pad": "%s"}' % (number, pad) for number in range(partition, events, PARTITIONS))
        kafka.produce(topic, values, partition=partition, headers=HEADERS | {"ce_id": b"%d" % partition})


@asynccontextmanager
async def served(place: Installation) -> AsyncIterator[Watched]:
    service = place.serve()
    watched = Watched(service.pid)
    watched.start()
    try:
        yield watched
    finally:
        await asyncio.to_thread(place.end_all)


async def until(place: Installation, client: Client, trigger: str, enough: Callable[[list[Execution]], bool]) -> None:
    while True:
        if enough(await place.executions(client, trigger)):
            return
        await asyncio.sleep(0.5)


def most_open(runs: list[Execution]) -> int:
    moments = sorted([(one.started, 1) for one in runs] + [(one.ended, -1) for one in runs if one.ended])
    now = most = 0
    for _, change in moments:
        now += change
        most = max(most, now)
    return most


def rate(runs: list[Execution]) -> float:
    """Starts per second between the first and the last."""
    starts = sorted(one.started for one in runs)
    return round((len(starts) - 1) / (starts[-1] - starts[0]).total_seconds(), 1)


async def batches(place: Installation, client: Client, events: int) -> dict[str, Any]:
    fill(place.kafka, "batches", events)
    limits = {"batch": {"maxEvents": BATCH, "maxWait": "1s"}, "maxActive": 8}
    place.deploy(workflow("batches", "batches", "a", **limits))
    wanted = -(-events // PARTITIONS // BATCH) * PARTITIONS
    began = time.monotonic()
    async with served(place) as watched:
        await until(place, client, "batches.live", lambda runs: sum(bool(one.ended) for one in runs) >= wanted)
        seconds = time.monotonic() - began
    runs = await place.executions(client, "batches.live")
    about = {"runs": len(runs), "seconds": round(seconds, 1), "events_per_second": round(events / seconds)}
    return about | {"starts_per_second": rate(runs), "most_open": most_open(runs), "memory_mib": watched.figures()}


async def single(place: Installation, client: Client, events: int) -> dict[str, Any]:
    count = events // 25
    fill(place.kafka, "single", count)
    place.deploy(workflow("single", "single", "a"))
    driver = embedded.running_driver(place.home)
    assert driver is not None
    os.kill(driver.pid, signal.SIGSTOP)
    server = place.temporal()
    try:
        async with served(place) as watched:
            await until(place, client, "single.live", lambda runs: len(runs) > 0)
            cpu = watched.cpu(), cpu_of(server)
            first = await started(client)
            while await started(client) < count:  # noqa: ASYNC110  # the server sends no notice
                await asyncio.sleep(1)
            used = watched.cpu() - cpu[0], cpu_of(server) - cpu[1]
    finally:
        os.kill(driver.pid, signal.SIGKILL)
    runs = await place.executions(client, "single.live")
    each = [round(1e3 * seconds / (count - first), 1) for seconds in used]
    about = {"runs": len(runs), "starts_per_second": rate(runs), "memory_mib": watched.figures()}
    return about | {"service_cpu_ms": each[0], "server_cpu_ms": each[1]}


async def started(client: Client) -> int:
    """The number of runs, cheaper than a list of them."""
    return (await client.count_workflows("TreadleTrigger = 'single.live'")).count


def sleepy(name: str, seconds: float, **settings: Any) -> dict[str, Any]:
    document = workflow(name, name, "a", **settings)
    nap = {"type": "map", "input": {"items": [seconds]}, "uses": "triggers.naps:nap"}
    return document | {"stages": {"each": nap}}


async def slow(place: Installation, client: Client, events: int) -> dict[str, Any]:
    count = min(24, events)
    fill(place.kafka, "slow", count)
    place.deploy(sleepy("slow", 2.0, maxActive=4))
    async with served(place):
        await until(place, client, "slow.live", lambda runs: sum(bool(one.ended) for one in runs) >= count)
    runs = await place.executions(client, "slow.live")
    return {"runs": len(runs), "most_open": most_open(runs)}


async def fair(place: Installation, client: Client, events: int) -> dict[str, Any]:
    count = min(15, events)
    found: dict[str, Any] = {}
    for name, neighbour in zip(FAIR, (False, True), strict=True):
        place.kafka.create_topic(name)
        place.kafka.create_topic(f"{name}.dlt")
        if neighbour:
            fill(place.kafka, "greedy", events // 10)
            place.deploy(sleepy("greedy", 2.0, maxActive=1))
        place.deploy(workflow(name, name, "a"))
        async with served(place):
            await wait_of(place, client, name, 0)  # wait until the service is up
            if neighbour:
                await until(place, client, "greedy.live", lambda runs: len(runs) > 0)
            waits = [await wait_of(place, client, name, number) for number in range(1, count + 1)]
        found[name] = {"median_ms": round(statistics.median(waits) * 1e3), "most_ms": round(max(waits) * 1e3)}
        found["count"] = count
        place.registry.undeploy(name)
    place.registry.undeploy("greedy")
    return found


async def wait_of(place: Installation, client: Client, topic: str, number: int) -> float:
    """Seconds from the record's acknowledgement to the start of its run in Temporal."""
    headers = HEADERS | {"ce_id": b"%d" % number}
    await asyncio.to_thread(place.kafka.produce, topic, [b"1"], headers=headers)
    written = time.time()
    await asyncio.sleep(0.3)
    await until(place, client, f"{topic}.live", lambda runs: len(runs) > number)
    latest = max(one.started for one in await place.executions(client, f"{topic}.live"))
    return max(0.0, latest.timestamp() - written)


@contextmanager
def environment() -> Iterator[Installation]:
    with tempfile.TemporaryDirectory(prefix="treadle-bench-", ignore_cleanup_errors=True) as folder:
        home = Path(folder) / "home"
        home.mkdir(mode=0o700)
        with broker() as kafka, installation(home, kafka) as place:
            yield place


async def measure(place: Installation, what: list[str], events: int) -> dict[str, dict[str, Any]]:
    client = await place.client()
    found: dict[str, dict[str, Any]] = {}
    for name in what:
        place.ensure_driver()
        began = time.monotonic()
        found[name] = {"events": events, **await WHAT[name](place, client, events)}
        about = {"what": name, **found[name], "took": round(time.monotonic() - began, 1), "load": os.getloadavg()[0]}
        print(json.dumps(about), flush=True)
    return found


def table(found: dict[str, dict[str, Any]]) -> str:
    """The table of docs/triggers.md."""
    rows = [line for name, lines in ROWS.items() if name in found for line in lines(found[name])]
    return "\n".join(["| | |", "|---|---|", *(f"| {what} | {figure} |" for what, figure in rows)])


def _of_batches(one: dict[str, Any]) -> list[tuple[str, str]]:
    waiting = f"{one['events']:,} events of 190 bytes that wait in {PARTITIONS} partitions"
    figure = f"{one['runs']} runs, all over {one['seconds']} s after the service was started: "
    figure += f"{one['events_per_second']:,} events/s, {one['starts_per_second']} starts/s"
    memory = "{middle} MiB in the middle third, {last} MiB in the last, {most} MiB at most".format(**one["memory_mib"])
    return [
        (f"{waiting}, `batch: {{maxEvents: {BATCH}}}`, `maxActive: 8`", figure),
        ("the service's memory meanwhile", memory),
        ("runs open at once, by Temporal's own times", f"{one['most_open']} at most"),
    ]


def _of_slow(one: dict[str, Any]) -> list[tuple[str, str]]:
    return [("the same with `maxActive: 4` and runs of 2 s", f"{one['most_open']} at most")]


def _of_fair(one: dict[str, Any]) -> list[tuple[str, str]]:
    what = "from a record's acknowledgement by the broker to the start of its run"
    alone, beside = (f"median {one[name]['median_ms']} ms, at most {one[name]['most_ms']} ms" for name in FAIR)
    return [
        (what, f"{alone} of {one['count']}"),
        ("the same beside a trigger whose runs take 2 s and whose backlog waits", f"{beside} of {one['count']}"),
    ]


def _of_single(one: dict[str, Any]) -> list[tuple[str, str]]:
    cpu = f"{one['service_cpu_ms']} ms of CPU in the service and {one['server_cpu_ms']} ms in the server for each"
    return [(f"{one['runs']:,} events, one run for each", f"{one['starts_per_second']} starts/s; {cpu}")]


FAIR = ("alone", "beside")
WHAT = {"batches": batches, "slow": slow, "fair": fair, "single": single}
ROWS = {"batches": _of_batches, "slow": _of_slow, "fair": _of_fair, "single": _of_single}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=50_000)
    parser.add_argument("--only", default=",".join(WHAT))
    arguments = parser.parse_args()
    load = os.getloadavg()[0]
    with environment() as place:
        measured = asyncio.run(measure(place, arguments.only.split(","), arguments.events))
    print(f"\n{os.cpu_count()} cores, load {load:.1f} before and {os.getloadavg()[0]:.1f} after\n\n{table(measured)}")
