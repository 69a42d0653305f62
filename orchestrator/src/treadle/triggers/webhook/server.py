"""One HTTP server for all hooks of a process, in its event loop. It listens while there is a hook."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from typing import Any, cast

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from treadle.primitives.asyncio_tasks import spawn
from treadle.primitives.errors import UsageError
from treadle.primitives.log_rate_limit import limited_logger
from treadle.primitives.wire.acceptor import AcceptedConnection, Acceptor
from treadle.primitives.wire.unauthenticated import Strangers, allowance

from .app import Served, make_app

BACKLOG = 4096
"""Connections that wait to be accepted; the kernel may allow fewer."""
REQUEST_SECONDS = 30.0
"""Seconds for one complete request, from the connection or from the previous answer."""
HEADER_BYTES = 16 << 10
"""Maximum bytes of a request's head."""
REQUESTS = 500
"""Requests in progress at a time, if there are enough descriptors; further ones are answered 503."""
SLOW_READER = 30.0
"""Seconds after which the kernel closes a connection whose sender does not read the answer."""
limited_logger("uvicorn.error")


class HookServer:
    """Hooks by workflow and trigger. A process has one server for each address."""

    _servers: dict[str, HookServer] = {}  # noqa: RUF012

    def __init__(self, address: str) -> None:
        """`address`: `host:port`; port 0: any free port."""
        self._address = address
        self._hooks: dict[tuple[str, str], Served] = {}
        self._task: asyncio.Task[None] | None = None
        self._server: _Quiet | None = None
        self._acceptor: Acceptor | None = None
        self.port = 0

    @classmethod
    def at(cls, address: str) -> HookServer:
        return cls._servers.setdefault(address, cls(address))

    async def add(self, workflow: str, trigger: str, served: Served) -> None:
        """Serve the hook from now on. Raises UsageError when the address is not available."""
        if self._task is None:
            await self._listen()
        self._hooks[(workflow, trigger)] = served

    async def remove(self, workflow: str, trigger: str) -> None:
        """Stop serving the hook. Requests in progress are answered; the server ends with its last hook."""
        self._hooks.pop((workflow, trigger), None)
        if not self._hooks and self._server is not None and self._task is not None:
            task, self._task = self._task, None
            if self._acceptor is not None:
                self._acceptor.close()
            self._servers.pop(self._address, None)  # a hook added while it ends needs a new server
            self._server.should_exit = True
            await task

    async def _listen(self) -> None:
        bound = _bind(self._address)
        bound.listen(BACKLOG)
        self.port = bound.getsockname()[1]
        app = make_app(lambda workflow, trigger: self._hooks.get((workflow, trigger)))
        strangers: Strangers[AcceptedConnection] = Strangers(allowance(), REQUEST_SECONDS)
        config = uvicorn.Config(
            app,
            http=HookProtocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,  # paths and addresses of senders are private
            server_header=False,
            proxy_headers=False,
            h11_max_incomplete_event_size=HEADER_BYTES,
            limit_concurrency=strangers.most + allowance(REQUESTS, parts=4),
            timeout_keep_alive=5,
            timeout_graceful_shutdown=10,
        )
        self._server = server = _Quiet(config)
        self._task = spawn(server.serve([]))
        while not server.started and not self._task.done():  # noqa: ASYNC110  # it has no event for this
            await asyncio.sleep(0.01)
        self._acceptor = Acceptor(bound, f"webhooks at {self._address}", strangers, server.protocol)


class HookProtocol(H11Protocol):
    """One connection. Its sender is a stranger while no complete request is being answered.

    Every request must arrive within the Acceptor's time for strangers, head and body.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        *,
        caller: AcceptedConnection,
    ) -> None:
        super().__init__(config, server_state, app_state)
        self._caller = caller

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._caller.made(transport)
        sock = cast("socket.socket", transport.get_extra_info("socket"))
        with contextlib.suppress(OSError):  # the sender may have gone already
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(SLOW_READER * 1000))

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._settle()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._settle()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._caller.gone()

    def _settle(self) -> None:
        """While a complete request waits for its answer, the sender is not a stranger."""
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete and not cycle.more_body:
            self._caller.proved()
        elif not self.transport.is_closing():
            self._caller.unproved()


class _Quiet(uvicorn.Server):
    """Leaves signals to the service, and accepting to an Acceptor."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def protocol(self, caller: AcceptedConnection) -> HookProtocol:
        """The protocol of a new connection, as `uvicorn.Server.startup` makes it."""
        return HookProtocol(self.config, self.server_state, self.lifespan.state, caller=caller)


def _bind(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # for asyncio to set TCP_NODELAY
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, int(port)))
    except OSError as error:
        bound.close()
        hint = "Another service may have it; set webhook = { address = ... } in the profile."
        raise UsageError(f"webhooks cannot listen on {address}: {error.strerror}", hint) from None
    return bound
