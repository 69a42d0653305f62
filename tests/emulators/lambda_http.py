"""A small HTTP/1.1 server for emulators: h11 for the protocol, asyncio for the sockets, a function for the answers."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import h11
from msgspec import Struct

_READ = 1 << 18


class Request(Struct, frozen=True):
    method: str
    path: str
    """The decoded path, without the query."""
    query: dict[str, str]
    target: str
    """Path and query as sent."""
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes


class Reply(Struct, frozen=True):
    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = {}

    @staticmethod
    def json(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Reply:
        body = json.dumps(value).encode()
        return Reply(status, body, {"Content-Type": "application/json", **(headers or {})})


class HangUp(Exception):
    """Close the connection without an answer."""


Answering = Callable[[Request], Awaitable[Reply]]


class Server:
    """Listens on 127.0.0.1. Closing it ends running requests too."""

    def __init__(self, answer: Answering) -> None:
        self._answer = answer
        self._busy: set[asyncio.Task[None]] = set()

    async def start(self) -> int:
        """Start to listen. Returns the port."""
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0, limit=_READ)
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        self._server.close()
        busy = list(self._busy)
        for one in busy:
            one.cancel()
        await asyncio.gather(*busy, return_exceptions=True)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._busy.add(task)
        task.add_done_callback(self._busy.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(ConnectionError, HangUp, h11.RemoteProtocolError, asyncio.CancelledError):
                await _converse(self._answer, reader, writer)
        finally:
            writer.transport.abort()


async def _converse(answer: Answering, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    protocol = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20)
    while (request := await _receive(protocol, reader, writer)) is not None:
        reply = await answer(request)
        headers = list(reply.headers.items())
        if "Content-Length" not in reply.headers:
            headers.append(("Content-Length", str(len(reply.body))))
        head = protocol.send(h11.Response(status_code=reply.status, headers=headers))
        body = protocol.send(h11.Data(data=reply.body))
        writer.write((head or b"") + (body or b"") + (protocol.send(h11.EndOfMessage()) or b""))
        await writer.drain()
        if protocol.our_state is h11.MUST_CLOSE:
            return
        protocol.start_next_cycle()


async def _receive(
    protocol: h11.Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> Request | None:
    head: h11.Request | None = None
    body: list[bytes] = []
    while True:
        event = protocol.next_event()
        if event is h11.NEED_DATA:
            if protocol.they_are_waiting_for_100_continue:
                writer.write(protocol.send(h11.InformationalResponse(status_code=100, headers=[])) or b"")
            protocol.receive_data(await reader.read(_READ))
        elif isinstance(event, h11.Request):
            head = event
        elif isinstance(event, h11.Data):
            body.append(bytes(event.data))
        elif isinstance(event, h11.EndOfMessage) and head is not None:
            return _request(head, b"".join(body))
        else:
            return None


def _request(head: h11.Request, body: bytes) -> Request:
    url = urlsplit(head.target.decode())
    headers = {name.decode().lower(): value.decode() for name, value in head.headers}
    return Request(
        head.method.decode(), unquote(url.path), dict(parse_qsl(url.query)), head.target.decode(), headers, body
    )
