"""A proxy between functions and an S3 server: some requests fail like on a throttling store, some are slow."""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter
from typing import Any

import httpx
from emulators.lambda_http import Reply, Request, Server

_SLOW_DOWN = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
"""Amazon S3 API reference, error responses: 503 SlowDown."""
_HOP = ("connection", "transfer-encoding", "content-length", "content-encoding", "date", "server")


class FlakyS3:
    """Forwards to `target`, signatures included. `share` of the requests are answered 503, and as many are `seconds`
    late."""

    def __init__(self, target: str, *, share: float = 0.05, seconds: float = 0.2, seed: int = 0) -> None:
        self._target, self._share, self._seconds = target, share, seconds
        self._random = random.Random(seed)
        self.count: Counter[str] = Counter()
        self.kinds: Counter[str] = Counter()
        """Requests by S3's classes of charges (Amazon S3 pricing, "Requests & data retrievals")."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="flaky S3", daemon=True)

    def __enter__(self) -> FlakyS3:
        self._thread.start()
        self.url = self._call(self._open())
        return self

    def __exit__(self, *_: object) -> None:
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _call(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    async def _open(self) -> str:
        self._client = httpx.AsyncClient(trust_env=False, timeout=60)
        self._server = Server(self._answer)
        return f"http://127.0.0.1:{await self._server.start()}"

    async def _close(self) -> None:
        await self._server.close()
        await self._client.aclose()

    async def _answer(self, request: Request) -> Reply:
        drawn = self._random.random()
        self.count["requests"] += 1
        self.kinds[_kind(request)] += 1
        if drawn < self._share:
            self.count["failed"] += 1
            return Reply(503, _SLOW_DOWN, {"Content-Type": "application/xml"})
        if drawn < 2 * self._share:
            await asyncio.sleep(self._seconds)
        headers = {name: value for name, value in request.headers.items() if name not in ("connection", "expect")}
        said = await self._client.request(
            request.method, self._target + request.target, content=request.body, headers=headers
        )
        kept = {name: value for name, value in said.headers.items() if name.lower() not in _HOP}
        if request.method == "HEAD":
            kept["Content-Length"] = said.headers.get("content-length", "0")
        return Reply(said.status_code, said.content, kept)


def _kind(request: Request) -> str:
    if request.method == "GET" and "list-type" in request.query:  # ListObjectsV2
        return "list"
    if request.method == "POST" and "delete" in request.target.partition("?")[2].split("&"):  # DeleteObjects
        return "delete"
    return "put" if request.method == "POST" else request.method.lower()
