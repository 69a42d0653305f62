"""Strangers in a separate process: connections that send nothing, or a byte now and then, and reconnect when they are
ended."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
from collections.abc import Iterator
from multiprocessing.sharedctypes import Synchronized

Target = tuple[str, int] | str
PAUSE = 0.5
"""Seconds until a stranger reconnects."""
DRIP = 0.5
"""Seconds between two bytes of a slow stranger."""


class Flood:
    """`idle` and `slow` strangers at one address: a host with a port, or the abstract name of a Unix socket."""

    def __init__(self, target: Target, idle: int, slow: int, words: bytes) -> None:
        """`words`: the first bytes of slow strangers."""
        spawn = multiprocessing.get_context("spawn")
        self._ended: Synchronized[int] = spawn.Value("i", 0)
        self._process = spawn.Process(target=_run, args=(target, idle, slow, words, self._ended))

    @property
    def ended(self) -> int:
        """Connections that the other side has ended."""
        return self._ended.value

    def start(self) -> None:
        self._process.start()

    def stop(self) -> None:
        self._process.kill()
        self._process.join()
        self._process.close()


@contextlib.contextmanager
def flood(target: Target, idle: int, slow: int, words: bytes) -> Iterator[Flood]:
    found = Flood(target, idle, slow, words)
    found.start()
    try:
        yield found
    finally:
        found.stop()


def _run(target: Target, idle: int, slow: int, words: bytes, ended: Synchronized[int]) -> None:
    async def all_of_them() -> None:
        quiet = [_stranger(target, b"", ended) for _ in range(idle)]
        await asyncio.gather(*quiet, *(_stranger(target, words, ended) for _ in range(slow)))

    asyncio.run(all_of_them())


async def _stranger(target: Target, words: bytes, ended: Synchronized[int]) -> None:
    while True:
        with contextlib.suppress(OSError):
            await _call(target, words, ended)
        await asyncio.sleep(PAUSE)


async def _call(target: Target, words: bytes, ended: Synchronized[int]) -> None:
    dialled = (
        asyncio.open_unix_connection(f"\0{target}") if isinstance(target, str) else asyncio.open_connection(*target)
    )
    reader, writer = await dialled
    dripping = asyncio.create_task(_drip(writer, words))
    try:
        while await reader.read(1024):
            pass
    finally:
        ended.value += 1
        dripping.cancel()
        writer.transport.abort()


async def _drip(writer: asyncio.StreamWriter, words: bytes) -> None:
    for place in range(len(words)):
        writer.write(words[place : place + 1])
        await asyncio.sleep(DRIP)
