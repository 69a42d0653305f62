"""Redis as a mailbox: a list for each seat, blocking pops. Large values are set once, and a small note is pushed.

Arrays travel as their raw bytes, the minimum for redis-py.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from pathlib import Path

import numpy as np
import redis
from harness.gang import DEADLINE
from harness.work import Array, Task, split

from rivals.interface import GangRival

FAN_OUT = 2
_INLINE = 8 << 10
_SECONDS = int(DEADLINE)


class Member:
    def __init__(self, port: int, seat: int, members: int) -> None:
        self._seat, self._members = seat, members
        self._redis = redis.Redis(host="127.0.0.1", port=port, socket_timeout=DEADLINE + 5)
        self._redis.ping()

    def broadcast(self, key: str, value: Array | None) -> Array:
        if value is None:
            note = self._take(key, self._seat)
            return np.frombuffer(note or self._value(key), dtype=np.float64)
        note = value.tobytes() if value.nbytes <= _INLINE else b""
        pipeline = self._redis.pipeline(transaction=False)
        if not note:
            pipeline.set(key, value.data)
        for seat in range(1, self._members):
            pipeline.rpush(f"{key}:{seat}", note)
        pipeline.execute()
        return value

    def reduce(self, key: str, value: Array) -> Array | None:
        children = [
            seat for seat in range(FAN_OUT * self._seat + 1, FAN_OUT * self._seat + 1 + FAN_OUT) if seat < self._members
        ]
        partial = value
        for _ in children:
            brought = np.frombuffer(self._take(key, self._seat), dtype=np.float64)
            partial = np.add(partial, brought, out=None if partial is value else partial)
        if self._seat == 0:
            return partial
        self._redis.rpush(f"{key}:{(self._seat - 1) // FAN_OUT}", partial.data)
        return None

    def shuffle(self, key: str, value: Array) -> Array:
        parts = split(value, self._members)
        pipeline = self._redis.pipeline(transaction=False)
        for seat, part in enumerate(parts):
            if seat != self._seat:
                pipeline.rpush(f"{key}:{seat}", part.tobytes())
        pipeline.execute()
        received = [np.frombuffer(self._take(key, self._seat), dtype=np.int64) for _ in range(self._members - 1)]
        return np.concatenate([parts[self._seat], *received])

    def barrier(self, key: str) -> None:
        """The last to arrive leaves a token for each member."""
        if self._redis.incr(f"{key}:n") == self._members:
            self._redis.rpush(f"{key}:go", *[b"go"] * self._members)
        self._redis.blpop([f"{key}:go"], _SECONDS)

    def ping(self, key: str, payload: bytes, count: int) -> list[float]:
        seconds = []
        for _ in range(count):
            began = time.perf_counter()
            self._redis.rpush(f"{key}:1", payload)
            self._take(key, 0)
            seconds.append(time.perf_counter() - began)
        return seconds

    def pong(self, key: str, count: int) -> None:
        for _ in range(count):
            self._redis.rpush(f"{key}:0", self._take(key, 1))

    def close(self) -> None:
        self._redis.close()

    def _value(self, key: str) -> bytes:
        value = self._redis.get(key)
        assert isinstance(value, bytes)
        return value

    def _take(self, key: str, seat: int) -> bytes:
        popped = self._redis.blpop([f"{key}:{seat}"], _SECONDS)
        if popped is None:
            raise TimeoutError(f"nothing came for {key}:{seat}")
        assert isinstance(popped, (list, tuple))
        return bytes(popped[1])


class Rival(GangRival):
    join = Member
    preload = ("redis",)

    def measure(self, task: Task) -> list[float]:
        seconds = super().measure(task)
        self._client.flushall()
        return seconds

    def serve(self, members: int, folder: Path) -> int:  # noqa: ARG002
        binary = shutil.which("redis-server")
        if binary is None:
            raise FileNotFoundError("no redis-server on PATH (Debian: apt-get install redis-server)")
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = int(probe.getsockname()[1])
        command = [binary, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        self._server = subprocess.Popen([*command, "--dir", str(folder)], stdout=subprocess.DEVNULL)
        self._client = redis.Redis(host="127.0.0.1", port=port)
        end = time.monotonic() + 20
        while True:
            try:
                self._client.ping()
                return port
            except redis.ConnectionError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.05)

    def stop(self) -> None:
        super().stop()
        self._server.terminate()
        self._server.wait(20)
