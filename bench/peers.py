"""Messages and blocks between two processes, compared with the kernel's own cost. Prints JSON lines.

    python bench/peers.py [--rounds 10] [--trips 3000] [--size 100000000] [--tls]

Everything goes over TCP on loopback between two processes. All are timed in turn and repeatedly, so that other load on
the machine affects all alike. A round trip is 1 KiB there and back:

* `raw trip`: `send` and `recv` on blocking sockets, nothing else;
* `trip`: two `wire.Connection`, a message with a tail;
* `fetch`: 1 KiB of a block through `PeerClient` and `PeerServer`.

A pull is one block of `--size` bytes out of shared memory:

* `memcpy`: the same bytes copied within a process into memory that was never touched;
* `raw pull`: `sendfile` on one side, `recv_into` new memory on the other: the floor;
* `pull`: `PeerClient.fetch`, into memory of the process;
* `pull to host`: `PeerClient.fetch_to_host`, into a file of shared memory; `raw pull` and `memcpy` are its floor.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import platform
import socket
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct

from treadle.primitives import wire
from treadle.primitives.peers import PeerClient, PeerServer
from treadle.primitives.stores.shared_memory import SHARED_MEMORY, HostFolder

RUN, KEY = "bench", bytes(32)
SMALL = 1024
BLOCK = "s/0.1.bench"


class Trip(Struct):
    number: int


def far() -> float:
    return time.monotonic() + 600


# -- the other process ----------


def raw_echo(listener: socket.socket) -> None:
    sock, _ = listener.accept()
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    buffer = memoryview(bytearray(SMALL))
    with sock:
        while sock.recv_into(buffer, SMALL, socket.MSG_WAITALL):
            sock.sendall(buffer)


def raw_send(listener: socket.socket, path: Path, size: int) -> None:
    """Send the file once for each received byte."""
    sock, _ = listener.accept()
    descriptor = os.open(path, os.O_RDONLY)
    with sock:
        while sock.recv(1):
            sent = 0
            while sent < size:
                sent += os.sendfile(sock.fileno(), descriptor, sent, size - sent)
    os.close(descriptor)


def echo(listener: socket.socket, tls: wire.Identity | None) -> None:
    connection = wire.accept(listener.accept()[0], lambda _: KEY, deadline=far(), tls=tls)
    with connection, contextlib.suppress(wire.ConnectionClosed):
        while True:
            message, tail = received(connection)
            connection.send(message, tail, deadline=far())


def received(connection: wire.Connection) -> tuple[Trip, bytearray]:
    message, length = connection.receive_head(Trip, far(), tail_limit=SMALL)
    tail = bytearray(length)
    connection.receive_into(memoryview(tail), far())
    return message, tail


def serve(pipe: Pipe, root: Path, size: int, tls: wire.Identity | None) -> None:
    """A server of each kind, with one thread each, while the other end of the pipe is open."""
    from threading import Thread

    host = HostFolder(root)
    server = PeerServer(host, lambda _: KEY, f"{'tls' if tls else 'tcp'}://127.0.0.1:0", tls)
    listeners = [wire.listen("tcp://127.0.0.1:0") for _ in range(3)]
    targets: list[tuple[Callable[..., None], tuple[Any, ...]]] = [
        (raw_echo, ()),
        (raw_send, (host.path(f"{RUN}/{BLOCK}"), size)),
        (echo, (tls,)),
    ]
    for listener, (target, arguments) in zip(listeners, targets, strict=True):
        Thread(target=target, args=(listener, *arguments), daemon=True).start()
    addresses = [wire.address_of(listener) for listener in listeners[:2]]
    pipe.send([*addresses, wire.address_of(listeners[2], tls=tls is not None), server.address])
    pipe.poll(None)
    os._exit(0)


@contextmanager
def other_process(root: Path, size: int, tls: wire.Identity | None) -> Iterator[list[str]]:
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(target=serve, args=(theirs, root, size, tls))
    process.start()
    try:
        yield ours.recv()
    finally:
        process.kill()
        process.join()


# -- this process ----------


def measure(name: str, operation: Callable[[], object], times: int, figures: dict[str, list[float]]) -> None:
    for _ in range(times):
        began = time.perf_counter()
        kept = operation()
        figures.setdefault(name, []).append(time.perf_counter() - began)
        del kept


def raw_trip(sock: socket.socket, body: bytes) -> Callable[[], object]:
    buffer = memoryview(bytearray(SMALL))

    def trip() -> None:
        sock.sendall(body)
        sock.recv_into(buffer, SMALL, socket.MSG_WAITALL)

    return trip


def raw_pull(sock: socket.socket, size: int) -> Callable[[], object]:
    def pull() -> memoryview:
        view = np.empty(size, np.uint8).data
        sock.sendall(b"1")
        done = 0
        while done < size:
            done += sock.recv_into(view[done:])
        return view

    return pull


def trip(connection: wire.Connection, body: bytes) -> Callable[[], object]:
    def there_and_back() -> None:
        connection.send(Trip(1), body, deadline=far())
        received(connection)

    return there_and_back


def run(rounds: int, trips: int, size: int, tls: wire.Identity | None, folder: Path) -> dict[str, list[float]]:
    there, here = HostFolder(folder / "there" / "host"), HostFolder(folder / "here" / "host")
    there.put(f"{RUN}/{BLOCK}", [os.urandom(size)])
    figures: dict[str, list[float]] = {}
    client, source, body = PeerClient(RUN, KEY), there.map(f"{RUN}/{BLOCK}"), os.urandom(SMALL)
    with other_process(there.root, size, tls) as (echoing, sending, speaking, serving):
        raw = [socket.create_connection(wire.parse(address)[1:]) for address in (echoing, sending)]
        raw[0].setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = wire.connect(speaking, RUN, KEY, deadline=far())
        small = {
            "raw trip": raw_trip(raw[0], body),
            "trip": trip(connection, body),
            "fetch": lambda: client.fetch(serving, [(BLOCK, 4096, SMALL)], far()),
        }
        large = {
            "memcpy": lambda: np.frombuffer(source, np.uint8).copy(),
            "raw pull": raw_pull(raw[1], size),
            "pull": lambda: client.fetch(serving, [(BLOCK, 0, size)], far()),
            "pull to host": lambda: client.fetch_to_host(serving, BLOCK, size, here, far()),
        }
        for number in range(rounds + 1):
            seen = figures if number else {}  # the first round warms up
            for name, operation in small.items():
                measure(name, operation, trips // rounds, seen)
            for name, operation in large.items():
                measure(name, operation, 1, seen)
                here.delete_run(RUN)
        closing: list[socket.socket | wire.Connection | PeerClient] = [*raw, connection, client]
        for one in closing:
            one.close()
    return figures


def report(figures: dict[str, list[float]], size: int, tls: bool) -> None:
    print(json.dumps({"python": platform.python_version(), "cores": os.cpu_count(), "tls": tls, "bytes": size}))
    for name, seconds in figures.items():
        ordered = sorted(seconds)
        median = statistics.median(ordered)
        line: dict[str, object] = {"name": name, "times": len(ordered)}
        if len(ordered) >= 100:
            line |= {"median us": round(median * 1e6, 1), "p99 us": round(ordered[len(ordered) * 99 // 100] * 1e6, 1)}
        else:
            line |= {"median ms": round(median * 1e3, 1), "best ms": round(ordered[0] * 1e3, 1)}
            line |= {"GB/s": round(size / median / 1e9, 2)}
        print(json.dumps(line))
    raw, pull, shared, copy = (
        statistics.median(figures[name]) for name in ("raw pull", "pull", "pull to host", "memcpy")
    )
    ratios = {"pull / raw pull": pull / raw, "pull to host / (raw pull + memcpy)": shared / (raw + copy)}
    print(json.dumps({name: round(ratio, 2) for name, ratio in ratios.items()}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--trips", type=int, default=3000, help="round trips in all")
    parser.add_argument("--size", type=int, default=100_000_000, help="bytes of a block")
    parser.add_argument("--tls", action="store_true", help="encrypt all but what is raw")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="treadle-bench-", dir=SHARED_MEMORY) as folder:
        tls = wire.tls_identity(Path(folder) / "tls") if options.tls else None
        figures = run(options.rounds, options.trips, options.size, tls, Path(folder))
    report(figures, options.size, options.tls)


if __name__ == "__main__":
    main()
