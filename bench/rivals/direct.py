"""treadle's channels: members of one gang on one host, with their coordinator in the measuring process.

Arrays above 8 KiB are blocks in the host's shared memory; smaller ones travel in messages over Unix sockets. A round
trip uses TCP on loopback, as between members on several hosts.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from harness.gang import DEADLINE
from harness.settings import SHARED_MEMORY
from harness.work import Array

from rivals.interface import GangRival
from treadle.executors.runtime.process_setup import prepare_process
from treadle.primitives.blocks import Blocks
from treadle.primitives.channels import Barrier, BroadcastChannel, Gang, ReduceChannel, ShuffleChannel
from treadle.primitives.channels.member import Member as GangMember
from treadle.primitives.coordinator.server import CoordinatorServer
from treadle.primitives.stores.shared_memory import HostFolder
from treadle.primitives.stores.store import Store

RUN = "bench"


class Setup(NamedTuple):
    address: str
    key: bytes
    store: str
    host: str


def congruent(values: Array) -> Array:
    """The key of a shuffle: a record goes to the member congruent to its hash."""
    return values


class Member:
    """Channels are made at their first use and stay, as in a function that iterates."""

    def __init__(self, setup: Setup, seat: int, members: int) -> None:
        prepare_process()  # as in a worker, which runs a gang's members
        self._setup = setup
        self._gang = Gang(setup.address, RUN, "gang", seat, members, DEADLINE, one_host=True)
        self._member = self._join(self._gang)
        self._channels: dict[type[Any], Any] = {}

    def _join(self, gang: Gang) -> GangMember:
        blocks = Blocks(Store.open(self._setup.store), RUN, HostFolder(self._setup.host))
        return GangMember(gang, self._setup.key, blocks)

    @contextmanager
    def _over_tcp(self, key: str) -> Iterator[BroadcastChannel]:
        gang = msgspec.structs.replace(self._gang, name=f"ping-{key}", one_host=False)
        with closing(self._join(gang)) as member, BroadcastChannel("ping", parties=2, member=member) as channel:
            yield channel

    def broadcast(self, key: str, value: Array | None) -> Array:  # noqa: ARG002
        channel = self._channel(BroadcastChannel)
        if value is None:
            received: Array = channel.receive()
            return received
        channel.send(value)
        return value

    def reduce(self, key: str, value: Array) -> Array | None:  # noqa: ARG002
        result: Array | None = self._channel(ReduceChannel, np.add).reduce(value)
        return result

    def shuffle(self, key: str, value: Array) -> Array:  # noqa: ARG002
        return np.concatenate(self._channel(ShuffleChannel).send_receive(value, congruent))

    def barrier(self, key: str) -> None:  # noqa: ARG002
        self._channel(Barrier).wait()

    def ping(self, key: str, payload: bytes, count: int) -> list[float]:
        seconds = []
        with self._over_tcp(key) as channel:
            for _ in range(count):
                began = time.perf_counter()
                channel.send(payload)
                channel.receive()
                seconds.append(time.perf_counter() - began)
        return seconds

    def pong(self, key: str, count: int) -> None:
        with self._over_tcp(key) as channel:
            for _ in range(count):
                channel.send(channel.receive())

    def close(self) -> None:
        self._member.close()

    def _channel(self, kind: type[Any], *arguments: Any) -> Any:
        if kind not in self._channels:
            self._channels[kind] = kind(kind.__name__, *arguments, member=self._member)
        return self._channels[kind]


class Rival(GangRival):
    join = Member
    preload = (
        "treadle.primitives.blocks",
        "treadle.primitives.stores.store",
        "treadle.primitives.channels.collectives",
        "treadle.primitives.channels.member",
    )

    def serve(self, members: int, folder: Path) -> Setup:  # noqa: ARG002
        self._shared = tempfile.mkdtemp(prefix="treadle-bench-", dir=SHARED_MEMORY)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        key = os.urandom(32)
        self._server = CoordinatorServer({RUN: key}.get)
        asyncio.run_coroutine_threadsafe(self._server.start(), self._loop).result(DEADLINE)
        return Setup(self._server.address, key, f"file://{folder}/store", f"{self._shared}/host")

    def stop(self) -> None:
        super().stop()
        asyncio.run_coroutine_threadsafe(self._server.stop(), self._loop).result(DEADLINE)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        shutil.rmtree(self._shared, ignore_errors=True)
