"""A barrier for rivals that have actors but no barrier."""

from __future__ import annotations

import asyncio


class Meeting:
    """An actor whose coroutines run in one event loop. All waiters with the same key continue together."""

    def __init__(self, parties: int) -> None:
        self._parties = parties
        self._arrived: dict[str, int] = {}
        self._released: dict[str, asyncio.Event] = {}

    async def wait(self, key: str) -> None:
        event = self._released.setdefault(key, asyncio.Event())
        self._arrived[key] = self._arrived.get(key, 0) + 1
        if self._arrived[key] == self._parties:
            event.set()
        await event.wait()

    async def echo(self, payload: bytes) -> bytes:
        return payload
