"""A proxy on loopback that delays and counts the HTTP requests that pass through it."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class SlowProxy:
    """Forwards connections to a port. A request waits for `delay` seconds; requests of several connections overlap."""

    def __init__(self, target: int, delay: float) -> None:
        self._target, self._delay = target, delay
        self.requests = 0
        self.port = 0

    async def serve(self, started: threading.Event) -> None:
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        started.set()
        async with server:
            await server.serve_forever()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner, outer = await asyncio.open_connection("127.0.0.1", self._target)
        answered = asyncio.Event()
        answered.set()
        with contextlib.suppress(ConnectionError, asyncio.CancelledError):
            await asyncio.gather(self._requests(reader, outer, answered), _answers(inner, writer, answered))

    async def _requests(
        self, reader: asyncio.StreamReader, outer: asyncio.StreamWriter, answered: asyncio.Event
    ) -> None:
        while data := await reader.read(1 << 20):
            if answered.is_set():  # bytes after an answer begin a request
                answered.clear()
                self.requests += 1
                await asyncio.sleep(self._delay)
            outer.write(data)
            await outer.drain()
        outer.close()


async def _answers(inner: asyncio.StreamReader, writer: asyncio.StreamWriter, answered: asyncio.Event) -> None:
    while data := await inner.read(1 << 20):
        answered.set()
        writer.write(data)
        await writer.drain()
    writer.close()


@contextmanager
def slow_proxy(target: int, delay: float) -> Iterator[SlowProxy]:
    """A proxy that serves in a thread of its own until the block ends."""
    proxy, started, loop = SlowProxy(target, delay), threading.Event(), asyncio.new_event_loop()
    serving = loop.create_task(proxy.serve(started))

    def serve() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            loop.run_until_complete(serving)
        for connection in asyncio.all_tasks(loop):
            connection.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    started.wait()
    try:
        yield proxy
    finally:
        loop.call_soon_threadsafe(serving.cancel)
        thread.join()
