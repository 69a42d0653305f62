"""Coordinators for gangs: in a thread of the test, or in a process that can be killed and restarted."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import multiprocessing.connection
import socket
import threading
from collections.abc import Iterator
from multiprocessing.context import ForkServerProcess

from treadle.primitives.coordinator import Timing
from treadle.primitives.coordinator.server import CoordinatorServer

TIMING = Timing(lease=5.0, grace=1.0, settle=1.0)


@contextlib.contextmanager
def running(run: str, key: bytes) -> Iterator[str]:
    """The address of a coordinator in a thread of this process."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    server = CoordinatorServer({run: key}.get, timing=TIMING)
    try:
        asyncio.run_coroutine_threadsafe(server.start(), loop).result(10)
        yield server.address
        asyncio.run_coroutine_threadsafe(server.stop(), loop).result(10)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


class Killable:
    """A coordinator in a separate process, always at the same address."""

    def __init__(self, run: str, key: bytes) -> None:
        with socket.create_server(("127.0.0.1", 0)) as sock:
            self.address = f"tcp://127.0.0.1:{sock.getsockname()[1]}"
        self._run, self._key = run, key
        self._process: ForkServerProcess | None = None

    def start(self) -> None:
        context = multiprocessing.get_context("forkserver")
        ready, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, self.address, self._run, self._key), daemon=True)
        self._process.start()
        assert ready.poll(30)
        ready.recv()
        ready.close()
        theirs.close()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process = None


@contextlib.contextmanager
def killable(run: str, key: bytes) -> Iterator[Killable]:
    coordinator = Killable(run, key)
    coordinator.start()
    try:
        yield coordinator
    finally:
        coordinator.kill()


def _serve(ready: multiprocessing.connection.Connection, address: str, run: str, key: bytes) -> None:
    async def serve() -> None:
        async with CoordinatorServer({run: key}.get, address, timing=TIMING):
            ready.send("ready")
            await asyncio.Event().wait()

    asyncio.run(serve())
