"""A command's side of the driver's socket."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from contextlib import closing
from typing import Any, TypeVar

from treadle.primitives.addresses import parse
from treadle.primitives.errors import UsageError
from treadle.primitives.wire.errors import NotAuthentic, WireError
from treadle.primitives.wire.framing import Decoder, encode
from treadle.primitives.wire.handshake import Handshake

from ..environment.connection_errors import Unreachable
from .requests import NAME, RunAnswer, RunRequest, RunService, decoded, encoded, socket_key, value_of

A = TypeVar("A")
_GREETING = 5.0
"""Seconds for the handshake."""


class DriverRuns:
    """The RunService that asks the driver.

    Each request has a connection of its own. If the driver does not answer in time, or ends before it has answered,
    this request and all later ones are answered by `direct`.
    """

    def __init__(self, address: str, deployment_key: bytes, direct: Callable[[], Awaitable[RunService]]) -> None:
        """`direct`: connects to Temporal."""
        self._name = parse(address).host
        self._key, self._direct = socket_key(deployment_key), direct
        self._instead: RunService | None = None

    async def ask(self, request: RunRequest[A]) -> A:
        """See RunService.ask. Raises UsageError when the driver has another key, and Unreachable when it ended during
        a request that must not be repeated."""
        if self._instead is None:
            try:
                return value_of(request, await self._asked(request))
            except _Lost as lost:
                if lost.sent and not request.repeatable:
                    text = "the driver has ended or does not answer; it is unknown whether it has started the run"
                    raise Unreachable(text, "See: treadle list. If there is no such run, try again.") from lost
            self._instead = await self._connected()
        return await self._instead.ask(request)

    async def _connected(self) -> RunService:
        try:
            return await self._direct()
        except Unreachable as error:
            raise Unreachable("the driver has ended, and Temporal does not answer", error.hint) from error

    async def _asked(self, request: RunRequest[Any]) -> RunAnswer:
        with closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as sock:
            sock.setblocking(False)
            stream = _Stream(sock)
            try:
                async with asyncio.timeout(_GREETING):
                    await asyncio.get_running_loop().sock_connect(sock, f"\0{self._name}")
                    await stream.greet(Handshake.client(NAME, self._key))
            except (OSError, EOFError, WireError) as error:  # a timeout is an OSError
                raise _Lost(sent=False) from error
            except NotAuthentic as error:
                raise _other_key(error) from error
            try:
                async with asyncio.timeout(request.patience):
                    await stream.send(encoded(request))
                    answer: RunAnswer = decoded(RunAnswer, await stream.receive())
                return answer
            except (OSError, EOFError, WireError) as error:
                raise _Lost(sent=True) from error


class _Lost(Exception):
    """The driver does not answer. `sent`: it may have received the request."""

    def __init__(self, *, sent: bool) -> None:
        self.sent = sent


class _Stream:
    """Frames without tails over a connected socket."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock, self._decoder, self._heads = sock, Decoder(), list[bytes]()
        self._loop = asyncio.get_running_loop()

    async def greet(self, handshake: Handshake) -> None:
        await self.send(handshake.opening())
        while not handshake.done:
            if answer := handshake.receive(await self.receive()):
                await self.send(answer)

    async def send(self, head: bytes) -> None:
        await self._loop.sock_sendall(self._sock, b"".join(encode(head)))

    async def receive(self) -> bytes:
        """The next message. Raises EOFError at the end."""
        while not self._heads:
            count = await self._loop.sock_recv_into(self._sock, self._decoder.room())
            if not count:
                raise EOFError
            self._heads += self._decoder.advance(count)
        return self._heads.pop(0)


def _other_key(error: NotAuthentic) -> UsageError:
    return UsageError(
        f"the driver of this home does not accept this command: {error.message}",
        "Was the home's key replaced while the driver ran? `treadle dev down` ends the driver; the next command starts "
        "one with the key that is there now.",
    )
