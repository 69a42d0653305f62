"""The machine's limit without any library: arrays in shared memory that is made once and kept, TCP sockets.

Every member writes its data straight into its own segment. All members do a reduce at once, in slices. There is no
hashing, no failure handling and no late join, so no transport with these features can be faster.
"""

from __future__ import annotations

import mmap
import multiprocessing
import os
import shutil
import socket
import tempfile
import time
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import NamedTuple

import numpy as np
from harness.gang import DEADLINE
from harness.settings import SHARED_MEMORY
from harness.work import Array, split

from rivals.interface import GangRival

_STRIPE = 1 << 16
"""Elements added at a time, so that the sum stays in cache."""


class Setup(NamedTuple):
    segments: Path
    barrier: Barrier
    listener: socket.socket


class Member:
    def __init__(self, setup: Setup, seat: int, members: int) -> None:
        self._setup, self._seat, self._members = setup, seat, members
        self._segments: dict[str, mmap.mmap] = {}

    def broadcast(self, key: str, value: Array | None) -> Array:  # noqa: ARG002
        if value is not None:
            shared = self._segment("0", len(value))
            np.copyto(shared, value)
        self._wait()
        return self._segment("0")

    def reduce(self, key: str, value: Array) -> Array | None:  # noqa: ARG002
        np.copyto(self._segment(str(self._seat), len(value)), value)
        result = self._segment("sum", len(value)) if self._seat == 0 else None
        self._wait()
        self._add_slice(len(value))
        self._wait()
        return result

    def _add_slice(self, length: int) -> None:
        parts = [self._segment(str(seat)) for seat in range(self._members)]
        result = self._segment("sum")
        begin, end = (length * seat // self._members for seat in (self._seat, self._seat + 1))
        for start in range(begin, end, _STRIPE):
            stripe = slice(start, min(start + _STRIPE, end))
            np.add(parts[0][stripe], parts[1][stripe], out=result[stripe])
            for part in parts[2:]:
                result[stripe] += part[stripe]

    def shuffle(self, key: str, value: Array) -> Array:  # noqa: ARG002
        parts = split(value, self._members)
        np.concatenate(parts, out=self._segment(f"i{self._seat}", len(value)).view(np.int64))
        ends = np.cumsum([0, *map(len, parts)])
        self._segment(f"e{self._seat}", len(ends)).view(np.int64)[:] = ends
        self._wait()
        return np.concatenate([self._part(seat) for seat in range(self._members)])

    def _part(self, seat: int) -> Array:
        begin, end = self._segment(f"e{seat}").view(np.int64)[self._seat : self._seat + 2]
        return self._segment(f"i{seat}").view(np.int64)[begin:end]

    def barrier(self, key: str) -> None:  # noqa: ARG002
        self._wait()

    def ping(self, key: str, payload: bytes, count: int) -> list[float]:  # noqa: ARG002
        seconds = []
        with socket.create_connection(self._setup.listener.getsockname(), timeout=DEADLINE) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for _ in range(count):
                began = time.perf_counter()
                connection.sendall(payload)
                _receive(connection, len(payload))
                seconds.append(time.perf_counter() - began)
        return seconds

    def pong(self, key: str, count: int) -> None:  # noqa: ARG002
        self._setup.listener.settimeout(DEADLINE)
        connection, _ = self._setup.listener.accept()
        with connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while data := connection.recv(1 << 16):
                connection.sendall(data)

    def close(self) -> None:
        self._setup.listener.close()

    def _wait(self) -> None:
        self._setup.barrier.wait(DEADLINE)

    def _segment(self, name: str, length: int | None = None) -> Array:
        """Shared float64. With a length it is resized, and then stays for the next round."""
        path = self._setup.segments / name
        if length is not None and (not path.exists() or path.stat().st_size != 8 * length):
            path.write_bytes(b"")
            os.truncate(path, 8 * length)
        size = path.stat().st_size
        if name not in self._segments or len(self._segments[name]) != size:
            with path.open("r+b") as file:
                self._segments[name] = mmap.mmap(file.fileno(), size)
        return np.frombuffer(self._segments[name], dtype=np.float64)


def _receive(connection: socket.socket, length: int) -> None:
    while length:
        data = connection.recv(length)
        if not data:
            raise ConnectionError("the other side ended")
        length -= len(data)


class Rival(GangRival):
    join = Member

    def serve(self, members: int, folder: Path) -> Setup:  # noqa: ARG002
        self._segments = Path(tempfile.mkdtemp(prefix="treadle-bench-", dir=SHARED_MEMORY))
        self._listener = socket.create_server(("127.0.0.1", 0))
        return Setup(self._segments, multiprocessing.get_context("forkserver").Barrier(members), self._listener)

    def stop(self) -> None:
        super().stop()
        self._listener.close()
        shutil.rmtree(self._segments, ignore_errors=True)
