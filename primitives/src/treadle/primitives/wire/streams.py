"""The same connections for asyncio: `serve` and `open_connection`.

Received straight into the decoder's buffers (`asyncio.BufferedProtocol`); reading pauses while more than a bounded
number of bytes waits to be taken. Deadlines are moments of `time.monotonic()`, which is the loop's clock.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

import msgspec

from ..whole_files import Buffer
from . import framing
from .addresses import parse
from .dialling import address_of, listen, prepare
from .errors import Closed, NotAuthentic, TimedOut, WireError
from .framing import Decoder, Frame
from .handshake import MESSAGE_LIMIT, Handshake, KeyOf
from .heads import decode_head, encode_head

if TYPE_CHECKING:
    import ssl

    from .tls import Identity

T = TypeVar("T")
_WAITING = 4 << 20
"""Bytes received and not taken, from which reading pauses."""
HANDSHAKE_SECONDS = 10.0


class AsyncConnection(asyncio.BufferedProtocol):
    """Framed messages over a connection; one task may send while another receives."""

    def __init__(self, on_connected: Callable[[AsyncConnection], None] | None = None) -> None:
        self.name = "the other side"
        """Of the other side, for messages of errors."""
        self.run = ""
        """Of the handshake."""
        self._on_connected = on_connected
        self._decoder = Decoder(MESSAGE_LIMIT, 0)
        self._frames: deque[Frame] = deque()
        self._bytes = 0
        self._paused = False
        self._error: WireError | None = None
        self._arrival: asyncio.Future[None] | None = None
        self._room = asyncio.Event()
        self._room.set()
        self._lost = asyncio.Event()
        self._transport: asyncio.Transport

    # -- sending ----------

    def send_nowait(self, message: msgspec.Struct, tail: Buffer | Sequence[Buffer] = b"") -> None:
        """Send as much as the kernel takes and keep the rest. Raises WireError when the connection was lost.

        Who sends much looks at `pending`, or uses `send`.
        """
        self.send_frame_nowait(encode_head(message), tail)

    def send_frame_nowait(self, head: bytes, tail: Buffer | Sequence[Buffer] = b"") -> None:
        """The same with a head that is encoded already."""
        if self._error is not None or self._transport.is_closing():
            raise self._error or self._closed_here()
        for buffer in framing.encode(head, tail):
            self._transport.write(buffer)

    async def send(self, message: msgspec.Struct, tail: Buffer | Sequence[Buffer] = b"", *, deadline: float) -> None:
        """Send, and wait until little is kept. Raises WireError; after TimedOut the connection is closed."""
        self.send_nowait(message, tail)
        if self._room.is_set():
            return
        try:
            async with asyncio.timeout_at(deadline):
                await self._room.wait()
        except TimeoutError:
            self.abort()
            raise TimedOut(f"{self.name} does not take data", "It may be busy or cut off.") from None
        self._raise_lost()

    def _raise_lost(self) -> None:
        if self._error is not None:
            raise self._error

    @property
    def pending(self) -> int:
        """Bytes kept that the kernel did not take yet."""
        return self._transport.get_write_buffer_size()

    # -- receiving ----------

    @overload
    async def receive(self, kind: type[T], deadline: float) -> tuple[T, bytes | bytearray]: ...
    @overload
    async def receive(self, kind: Any, deadline: float) -> tuple[Any, bytes | bytearray]: ...
    async def receive(self, kind: Any, deadline: float) -> tuple[Any, bytes | bytearray]:
        """The next message and its tail. Raises WireError: Closed at the end, TimedOut (then try again)."""
        frame = await self._next(deadline)
        try:
            return decode_head(kind, frame.head, self.name), frame.tail
        except WireError:
            self.abort()
            raise

    async def _next(self, deadline: float) -> Frame:
        if not self._frames:
            try:
                async with asyncio.timeout_at(deadline):
                    await self._arrive()
            except TimeoutError:
                raise TimedOut(f"{self.name} did not answer in time", "It may be busy or cut off.") from None
        frame = self._frames.popleft()
        self._bytes -= len(frame.head) + len(frame.tail)
        if self._paused and self._bytes <= _WAITING:
            self._paused = False
            self._transport.resume_reading()
        return frame

    async def _arrive(self) -> None:
        while not self._frames:
            self._raise_lost()
            self._arrival = asyncio.get_running_loop().create_future()
            await self._arrival

    # -- the handshake ----------

    async def greet(self, handshake: Handshake, deadline: float, tail_limit: int) -> None:
        """Do one side's part of the handshake. Raises NotAuthentic and WireError; the connection is closed then."""
        try:
            if not handshake.is_server:
                self.send_frame_nowait(handshake.opening())
            while not handshake.done:
                answer = handshake.receive((await self._next(deadline)).head)
                if handshake.trusted:  # before it is told so: its first message may follow at once
                    self._decoder.head_limit, self._decoder.tail_limit = framing.HEAD_LIMIT, tail_limit
                if answer:
                    self.send_frame_nowait(answer)
        except NotAuthentic:
            if words := handshake.last_words:
                with contextlib.suppress(WireError):
                    self.send_frame_nowait(words)
            self.close()
            raise
        except BaseException:
            self.abort()
            raise
        self.run = handshake.run

    @property
    def certificate(self) -> bytes:
        """Digest of the certificate the server showed to this client; b"" without TLS."""
        secure = self._transport.get_extra_info("ssl_object")
        if secure is None:
            return b""
        from .tls import server_digest

        return server_digest(cast("ssl.SSLObject", secure))

    # -- the end ----------

    @property
    def closed(self) -> bool:
        return self._error is not None or self._transport.is_closing()

    def close(self) -> None:
        """Close once what is kept was sent."""
        self._transport.close()

    def abort(self) -> None:
        """Close now."""
        self._transport.abort()

    async def wait_closed(self) -> None:
        """Return when the socket is closed."""
        await self._lost.wait()

    def _closed_here(self) -> WireError:
        return Closed(f"the connection to {self.name} was closed here", "Connect again.")

    def _fail(self, error: WireError) -> None:
        if self._error is None:
            self._error = error
        self._wake()
        self._room.set()

    def _wake(self) -> None:
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)
        self._arrival = None

    # -- what the loop calls ----------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        prepare(transport.get_extra_info("socket"))
        host, port = (transport.get_extra_info("peername") or ("?", 0))[:2]
        self.name = f"{host}:{port}"
        if self._on_connected is not None:
            self._on_connected(self)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        return self._decoder.room()

    def buffer_updated(self, nbytes: int) -> None:
        try:
            frames = self._decoder.advance(nbytes)
        except WireError as error:
            self._fail(error)
            self.abort()
            return
        for frame in frames:
            self._frames.append(frame)
            self._bytes += len(frame.head) + len(frame.tail)
        if frames:
            self._wake()
        if self._bytes > _WAITING and not self._paused:
            self._paused = True
            self._transport.pause_reading()

    def pause_writing(self) -> None:
        self._room.clear()

    def resume_writing(self) -> None:
        self._room.set()

    def eof_received(self) -> bool:
        if not self._decoder.between:
            self._fail(WireError(f"{self.name} ended within a message", "Connect again."))
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is None:
            self._fail(Closed(f"the connection to {self.name} was closed", "Connect again."))
        else:
            error = WireError(f"the connection to {self.name} was lost: {exc}", "Connect again.")
            error.__cause__ = exc
            self._fail(error)
        self._lost.set()


Handler = Callable[[AsyncConnection], Awaitable[None]]


class Server:
    """Accepts connections until it is closed; each has a task of its own that ends with its connection."""

    def __init__(self, server: asyncio.Server, tasks: set[asyncio.Task[None]], address: str) -> None:
        self._server, self._tasks = server, tasks
        self.address = address

    async def close(self) -> None:
        """Stop listening, cancel every handler, and wait for all of them."""
        self._server.close()
        for task in self._tasks:
            task.cancel()
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def __aenter__(self) -> Server:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


async def serve(
    handler: Handler,
    address: str,
    key_of: KeyOf,
    tls: Identity | None = None,
    *,
    plain: bool = False,
    tail_limit: int = framing.TAIL_LIMIT,
    on_refused: Callable[[Exception], None] = lambda error: None,  # noqa: ARG005
) -> Server:
    """Listen at `address` and call `handler` with each connection that was authenticated; its `run` says for what.

    The connection is closed when the handler returns; a WireError it raises ends only its connection. Raises
    UsageError for an address that cannot be, WireError when it is taken.
    """
    _require_identity(parse(address, plain=plain).scheme, tls)
    tasks: set[asyncio.Task[None]] = set()

    async def attend(connection: AsyncConnection) -> None:
        try:
            handshake = Handshake.server(key_of, tls.digest if tls else b"")
            await connection.greet(handshake, time.monotonic() + HANDSHAKE_SECONDS, tail_limit)
            await handler(connection)
        except (WireError, NotAuthentic) as error:
            on_refused(error)
        except asyncio.CancelledError:
            connection.abort()
        finally:
            connection.close()
            with contextlib.suppress(asyncio.CancelledError):
                await connection.wait_closed()

    def connected(connection: AsyncConnection) -> None:
        task = asyncio.ensure_future(attend(connection))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    loop = asyncio.get_running_loop()
    sock = listen(address, plain=plain)
    secure: dict[str, Any] = {"ssl": tls.context(), "ssl_handshake_timeout": HANDSHAKE_SECONDS} if tls else {}
    server = await loop.create_server(lambda: AsyncConnection(connected), sock=sock, **secure)
    return Server(server, tasks, address_of(sock, tls=tls is not None))


def _require_identity(scheme: str, tls: Identity | None) -> None:
    if (scheme == "tls") != (tls is not None):
        from ..errors import UsageError

        raise UsageError(f"an identity goes with tls:// and only with it, not with {scheme}://", "See tls_identity.")


async def open_connection(
    address: str,
    run: str,
    key: bytes,
    deadline: float,
    *,
    plain: bool = False,
    tail_limit: int = framing.TAIL_LIMIT,
) -> AsyncConnection:
    """The same as `connect`, for asyncio. Raises UsageError, WireError and NotAuthentic."""
    target = parse(address, plain=plain)
    secure: dict[str, Any] = {}
    if target.scheme == "tls":
        from .tls import client_context

        secure = {"ssl": client_context(), "server_hostname": ""}
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout_at(deadline):
            _, connection = await loop.create_connection(AsyncConnection, target.host, target.port, **secure)
    except TimeoutError as error:
        raise TimedOut(f"{address} did not answer in time", "Is it up, and reachable from here?") from error
    except OSError as error:
        raise WireError(f"no connection with {address}: {error}", "Is it up, and reachable from here?") from error
    connection.name = address
    await connection.greet(Handshake.client(run, key, connection.certificate), deadline, tail_limit)
    return connection
