"""A server of the emulators that runs on an event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from typing import Any, Self, TypeVar

from emulators.lambda_http import Reply, Request, Server

T = TypeVar("T")


class ThreadedServer(ABC):
    """Listens on 127.0.0.1 from `start` to `stop`."""

    endpoint: str

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)

    def start(self) -> Self:
        self._thread.start()
        self._server = Server(self._answer)
        self.endpoint = f"http://127.0.0.1:{self._call(self._server.start())}"
        return self

    def stop(self) -> None:
        self._call(self._server.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @abstractmethod
    async def _answer(self, request: Request) -> Reply:
        """The answer to one request."""

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)
