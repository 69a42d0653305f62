"""The same collectives over an object store alone, as functions without a path to each other would do them.

Data goes through `Blocks`, one object for each producer. Its reference, or the data itself when it is small, is an
object whose name the readers know. They poll for it: at once, then in intervals that grow to `SLOWEST`.
"""

from __future__ import annotations

import shutil
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from harness.gang import DEADLINE
from harness.work import Array, Task, split

from rivals.interface import GangRival
from treadle.primitives.blocks import Blocks
from treadle.primitives.encoding.references import BlockRef
from treadle.primitives.errors import MissingError
from treadle.primitives.stores.store import Store
from treadle.primitives.testing.s3 import seaweedfs

FAN_OUT = 2
FASTEST, SLOWEST = 0.0005, 0.02
"""Seconds between two polls."""
_INLINE = 8 << 10
_RUN = "bench"


class Member:
    def __init__(self, setup: tuple[str, dict[str, str]], seat: int, members: int) -> None:
        url, options = setup
        self._seat, self._members = seat, members
        self._store = Store.open(url, **options)
        self._blocks = Blocks(self._store, _RUN)

    def broadcast(self, key: str, value: Array | None) -> Array:
        if value is not None:
            self._say(f"{key}/value", [value])
            return value
        return self._hear(f"{key}/value", 0)

    def reduce(self, key: str, value: Array) -> Array | None:
        first = FAN_OUT * self._seat + 1
        partial = value
        for child in range(first, min(first + FAN_OUT, self._members)):
            brought = self._hear(f"{key}/{child}", 0)
            partial = np.add(partial, brought, out=None if partial is value else partial)
        if self._seat == 0:
            return partial
        self._say(f"{key}/{self._seat}", [partial])
        return None

    def shuffle(self, key: str, value: Array) -> Array:
        parts = split(value, self._members)
        self._say(f"{key}/{self._seat}", parts)
        others = [(self._seat + step) % self._members for step in range(1, self._members)]
        received = [self._hear(f"{key}/{seat}", self._seat) for seat in others]
        return np.concatenate([parts[self._seat], *received])

    def barrier(self, key: str) -> None:
        """Each leaves a mark. Seat 0 counts them and then announces the end, so that only one lists the folder."""
        if self._seat:
            self._store.create(f"{key}/arrived/{self._seat}", b"")
            self._await(lambda: self._store.head(f"{key}/released"))
            return
        self._await(lambda: sum(1 for _ in self._store.list(f"{key}/arrived")) == self._members - 1)
        self._store.create(f"{key}/released", b"")

    def ping(self, key: str, payload: bytes, count: int) -> list[float]:
        seconds = []
        for number in range(count):
            began = time.perf_counter()
            self._store.create(f"{key}/{number}/ping", payload)
            self._await(lambda name=f"{key}/{number}/pong": self._get(name))
            seconds.append(time.perf_counter() - began)
        return seconds

    def pong(self, key: str, count: int) -> None:
        for number in range(count):
            payload = self._await(lambda name=f"{key}/{number}/ping": self._get(name))
            self._store.create(f"{key}/{number}/pong", payload)

    def close(self) -> None:
        pass

    def _say(self, name: str, parts: list[Array]) -> None:
        reference = self._blocks.put(name, "array", parts, "store", inline_limit=_INLINE)
        self._store.create(name, msgspec.msgpack.encode(reference))

    def _hear(self, name: str, part: int) -> Array:
        reference = msgspec.msgpack.decode(self._await(lambda: self._get(name)), type=BlockRef)
        value: Array = self._blocks.get(reference.slice(part))
        return value

    def _get(self, name: str) -> bytes | None:
        try:
            return self._store.get(name)
        except MissingError:
            return None

    @staticmethod
    def _await(look: Any) -> Any:
        end, pause = time.monotonic() + DEADLINE, FASTEST
        while not (found := look()):
            if time.monotonic() > end:
                raise TimeoutError("nothing came")
            time.sleep(pause)
            pause = min(pause * 1.5, SLOWEST)
        return found


class Rival(GangRival):
    """On a folder of this machine."""

    join = Member
    preload = ("treadle.primitives.blocks", "treadle.primitives.stores.store", "obstore", "hashlib")

    def serve(self, members: int, folder: Path) -> tuple[str, dict[str, str]]:  # noqa: ARG002
        self._folder = folder
        return f"file://{folder}/store", {}

    def measure(self, task: Task) -> list[float]:
        seconds = super().measure(task)
        shutil.rmtree(self._folder / "store", ignore_errors=True)
        return seconds


class S3(GangRival):
    """On SeaweedFS."""

    join = Member
    preload = Rival.preload

    def serve(self, members: int, folder: Path) -> tuple[str, dict[str, str]]:  # noqa: ARG002
        self._exit = ExitStack()
        endpoint = self._exit.enter_context(seaweedfs())
        return "s3://treadle/bench", endpoint.options

    def stop(self) -> None:
        super().stop()
        self._exit.close()
