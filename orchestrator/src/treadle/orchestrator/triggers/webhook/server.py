"""One HTTP server for all hooks of a process, in its event loop; it listens while there is a hook."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator

import uvicorn

from treadle.primitives.asyncio_tasks import spawn
from treadle.primitives.errors import UsageError

from .app import Served, make_app


class HookServer:
    """Hooks by workflow and trigger. Of each address there is one in a process."""

    _servers: dict[str, HookServer] = {}  # noqa: RUF012

    def __init__(self, address: str) -> None:
        """`address`: `host:port`; port 0: any free one."""
        self._address = address
        self._hooks: dict[tuple[str, str], Served] = {}
        self._task: asyncio.Task[None] | None = None
        self._server: _Quiet | None = None
        self.port = 0

    @classmethod
    def at(cls, address: str) -> HookServer:
        return cls._servers.setdefault(address, cls(address))

    async def add(self, workflow: str, trigger: str, served: Served) -> None:
        """Serve the hook from now on. Raises UsageError when the address cannot be had."""
        if self._task is None:
            await self._listen()
        self._hooks[(workflow, trigger)] = served

    async def remove(self, workflow: str, trigger: str) -> None:
        """Requests under way are answered; the server ends with its last hook."""
        self._hooks.pop((workflow, trigger), None)
        if not self._hooks and self._server is not None and self._task is not None:
            task, self._task = self._task, None
            self._servers.pop(self._address, None)  # whoever comes while it ends makes another
            self._server.should_exit = True
            await task

    async def _listen(self) -> None:
        bound = _bind(self._address)
        self.port = bound.getsockname()[1]
        app = make_app(lambda workflow, trigger: self._hooks.get((workflow, trigger)))
        config = uvicorn.Config(
            app,
            lifespan="off",
            log_config=None,
            access_log=False,  # paths and addresses of senders are nobody's business
            server_header=False,
            proxy_headers=False,
            limit_concurrency=500,
            timeout_keep_alive=5,
            timeout_graceful_shutdown=10,
        )
        self._server = _Quiet(config)
        self._task = spawn(self._server.serve([bound]))
        while not self._server.started and not self._task.done():  # noqa: ASYNC110  # it tells nobody
            await asyncio.sleep(0.01)


class _Quiet(uvicorn.Server):
    """Leaves signals to the service."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _bind(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # asyncio sets TCP_NODELAY only then
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, int(port)))
    except OSError as error:
        bound.close()
        hint = "Another service may have it; set webhook = { address = ... } in the profile."
        raise UsageError(f"webhooks cannot listen on {address}: {error.strerror}", hint) from None
    return bound
