"""Channels between processes of this machine. Prints a JSON line for each measurement: median and min in seconds, and
the average cost of a repeat, which a busy machine changes less.

The cost has three parts: `cpu`, seconds of all members together; `sleeps`, voluntary context switches of all members;
`coordinator`, seconds of the coordinator (joining included).

    python bench/channels.py [--only ping barrier broadcast reduce shuffle] [--members 2 8 64] [--bytes 100 100000000]
                             [--records 1000000] [--repeats 20] [--wide 256]

* `ping`: 1 KiB to another member and back, over TCP on loopback; each round trip is one repeat
* `barrier`: from the last arrival to the last release, for each of --members and for --wide
* `broadcast`, `reduce`: NumPy arrays of each of --bytes; from a barrier until the last member has its value
* `shuffle`: --records integers in all, distributed by their hash; from a barrier until the last member has its pieces

All members are forked from one process, join a coordinator in this process, and read the same clock. Arrays above 8 KiB
are blocks in /dev/shm. Large arrays need members x bytes of memory (a reduce), so sizes that do not fit in half of the
free memory are left out, with a message.
"""

from __future__ import annotations

import os

os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")  # before numpy

import argparse
import asyncio
import json
import multiprocessing
import resource
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np

from treadle.executors.runtime.process_setup import prepare_process
from treadle.primitives.blocks import Blocks
from treadle.primitives.channels import Barrier, BroadcastChannel, Gang, ReduceChannel, ShuffleChannel, current_gang
from treadle.primitives.channels.member_scope import taking_part
from treadle.primitives.coordinator.server import CoordinatorServer
from treadle.primitives.stores.shared_memory import HostFolder
from treadle.primitives.stores.store import Store

RUN, KEY = "bench", bytes(32)
DEADLINE = 120.0
_context = multiprocessing.get_context("forkserver")


class Span(NamedTuple):
    """One repeat in one member."""

    began: float
    """Start, or arrival at a barrier: seconds on the clock that all processes share."""
    ended: float
    cpu: float
    """Seconds of all threads."""
    sleeps: int
    """Voluntary context switches."""


def timed(step: Callable[[], Any]) -> Span:
    before, began = resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
    step()
    ended, after = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Span(began, ended, cpu, after.ru_nvcsw - before.ru_nvcsw)


# -- the members' functions: each returns a span for each repeat ----------


def ping(_: int, repeats: int) -> list[Span]:
    payload = bytes(1024)
    with BroadcastChannel("ping") as channel:

        def there_and_back() -> None:
            if current_gang().rank == 0:
                channel.send(payload)
                channel.receive()
            else:
                channel.send(channel.receive())

        spans = [timed(there_and_back) for _ in range(repeats + 20)][20:]
    return spans if current_gang().rank == 0 else []


def barrier(_: int, repeats: int) -> list[Span]:
    return list(_together(lambda: None, repeats, None))


def broadcast(size: int, repeats: int) -> list[Span]:
    array = np.ones(max(1, size // 8))
    first = current_gang().rank == 0
    with BroadcastChannel("broadcast") as channel:
        return list(_together(lambda: channel.send(array) if first else channel.receive(), repeats, Barrier("begin")))


def reduce(size: int, repeats: int) -> list[Span]:
    array = np.ones(max(1, size // 8))
    with ReduceChannel("reduce", np.add) as channel:
        return list(_together(lambda: channel.reduce(array), repeats, Barrier("begin")))


def shuffle(records: int, repeats: int) -> list[Span]:
    gang = current_gang()
    array = np.arange(gang.rank, records, gang.size)
    with ShuffleChannel("shuffle") as channel:
        step = lambda: channel.send_receive(array, lambda rows: rows * 2654435761 >> 7)  # noqa: E731
        return list(_together(step, repeats, Barrier("begin")))


def _together(step: Callable[[], Any], repeats: int, begin: Barrier | None) -> Iterator[Span]:
    """Without `begin`, the barrier itself is measured."""
    measured = begin or Barrier("measured")
    measured.wait()
    for _ in range(repeats):
        if begin is not None:
            begin.wait()
        yield timed(measured.wait if begin is None else step)


# -- gangs ----------


def _member(pipe: Connection, gang: Gang, store: str, host: str, what: str, size: int, repeats: int) -> None:
    prepare_process()  # as in a worker
    blocks = Blocks(Store.open(store), RUN, HostFolder(host))
    with taking_part(gang, KEY, blocks):
        pipe.send(globals()[what](size, repeats))
    pipe.close()


def measure(address: str, what: str, members: int, size: int, repeats: int) -> dict[str, float]:
    """The values of a line (see the module)."""
    with (
        tempfile.TemporaryDirectory(prefix="treadle-bench-", dir="/dev/shm") as host,
        tempfile.TemporaryDirectory() as s,
    ):
        name = f"gang-{os.urandom(4).hex()}"
        pipes, processes = [], []
        for rank in range(members):
            ours, theirs = _context.Pipe()
            gang = Gang(address, RUN, name, rank, members, DEADLINE, one_host=what != "ping")
            process = _context.Process(target=_member, args=(theirs, gang, f"file://{s}", host, what, size, repeats))
            process.start()
            theirs.close()
            pipes.append(ours)
            processes.append(process)
        try:
            spans = [pipe.recv() for pipe in pipes]
        finally:
            for process in processes:
                process.join(10)
                process.kill()
    seconds = [_duration(what, one) for one in zip(*filter(None, spans), strict=True)]
    cpu, sleeps = (
        sum(column) / len(seconds) for column in zip(*(one[2:] for all in spans for one in all), strict=True)
    )
    return {"median": statistics.median(seconds), "min": min(seconds), "cpu": cpu, "sleeps": sleeps}


def _duration(what: str, spans: tuple[Span, ...]) -> float:
    """A barrier takes from the last arrival, the other operations from the first start."""
    began = max if what == "barrier" else min
    return max(one.ended for one in spans) - began(one.began for one in spans)


@contextmanager
def coordinator() -> Iterator[tuple[str, Callable[[], float]]]:
    """(its address, a function for its CPU time so far). It runs in a thread of this process."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    server = CoordinatorServer({RUN: KEY}.get)

    async def taken() -> float:
        return time.thread_time()

    try:
        asyncio.run_coroutine_threadsafe(server.start(), loop).result(10)
        yield server.address, lambda: asyncio.run_coroutine_threadsafe(taken(), loop).result(10)
        asyncio.run_coroutine_threadsafe(server.stop(), loop).result(10)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)


def plan(options: argparse.Namespace) -> Iterator[tuple[str, int, int, int]]:
    """The measurements: kind, members, size, repeats."""
    if "ping" in options.only:
        yield "ping", 2, 1024, 100 * options.repeats
    if "barrier" in options.only:
        for members in sorted({*options.members, *options.wide}):
            yield "barrier", members, 0, options.repeats
    for what in ("broadcast", "reduce"):
        for size in options.bytes if what in options.only else ():
            for members in options.members:
                yield what, members, size, options.repeats if size < 1 << 20 else min(5, options.repeats)
    if "shuffle" in options.only:
        for members in options.members:
            yield "shuffle", members, options.records, min(10, options.repeats)


def needs(what: str, members: int, size: int) -> int:
    """Approximate bytes of memory."""
    return size * (1 + 3 * members if what == "reduce" else members if what == "broadcast" else 0)


def free_memory() -> int:
    with open("/proc/meminfo") as lines:
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable"))


def main() -> None:
    every = ["ping", "barrier", "broadcast", "reduce", "shuffle"]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=every, default=every, help="what to measure; all if not given")
    parser.add_argument("--members", nargs="+", type=int, default=[2, 8], help="sizes of gangs")
    parser.add_argument("--wide", nargs="*", type=int, default=[64], help="further sizes of gangs for the barrier")
    parser.add_argument("--bytes", nargs="+", type=int, default=[100, 100_000_000], help="of arrays")
    parser.add_argument("--records", type=int, default=1_000_000, help="integers of a shuffle, in all")
    parser.add_argument("--repeats", type=int, default=20, help="of each; 5 at most for large arrays, x 100 for ping")
    options = parser.parse_args()
    _context.set_forkserver_preload(
        ["treadle.primitives.channels.collectives", "treadle.primitives.stores.store", "numpy"]
    )
    with coordinator() as (address, taken):
        for what, members, size, repeats in plan(options):
            line: dict[str, Any] = {"what": what, "members": members, "size": size, "repeats": repeats}
            if needs(what, members, size) > free_memory() // 2:
                line["left out"] = f"needs about {needs(what, members, size):,} bytes"
            else:
                before = taken()
                line |= measure(address, what, members, size, repeats)
                line["coordinator"] = (taken() - before) / repeats
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
