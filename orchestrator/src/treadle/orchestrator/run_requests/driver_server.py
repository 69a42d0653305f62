"""The socket at which a driver answers requests about runs, for commands of the same user on the same host."""

from __future__ import annotations

import asyncio
import itertools
import logging
import secrets
from typing import Any

from treadle.primitives.asyncio_tasks import spawn
from treadle.primitives.errors import InternalError, TreadleError
from treadle.primitives.wire.acceptor import AcceptedConnection, Acceptor
from treadle.primitives.wire.connect import listen
from treadle.primitives.wire.errors import WireError
from treadle.primitives.wire.handshake import Handshake
from treadle.primitives.wire.server_connection import ServerConnection
from treadle.primitives.wire.unauthenticated import Strangers, allowance

from .requests import ERRORS, NAME, AnyRequest, RunAnswer, RunService, decoded, encoded, socket_key

HANDSHAKE_SECONDS = 10.0
"""Time from accepting a connection until its proof, from the proof to the request, and from the answer to the next
request or the end."""
_log = logging.getLogger(__name__)


class DriverServer:
    """Answers one request at a time on each connection, under an abstract Unix address. For one event loop.

    Nothing is decoded before the challenge. A request ends with its connection, so a client that waits for the end of a
    run and goes away leaves nothing behind.
    """

    def __init__(self, service: RunService, deployment_key: bytes) -> None:
        self.address = ""
        """The address, after `start`. Empty: this machine lets the process have no Unix socket."""
        self._service, self._key = service, socket_key(deployment_key)
        self._numbers = itertools.count()
        self._working: dict[ServerConnection, asyncio.Task[None] | None] = {}
        """Open connections, each with the task that answers its request."""
        self._acceptor: Acceptor | None = None

    async def start(self) -> None:
        """Listen, if that is possible: a driver without a socket serves runs all the same."""
        # A name that no other process takes by chance, as it could take one of autobind.
        address = f"unix:treadle-{secrets.token_hex(16)}"
        try:
            sock = listen(address)
        except WireError as error:
            _log.warning("commands ask Temporal themselves: %s", error)
            return
        self.address = address
        strangers: Strangers[AcceptedConnection] = Strangers(allowance(), HANDSHAKE_SECONDS)
        self._acceptor = Acceptor(sock, f"requests at {self.address}", strangers, self._accept)

    async def stop(self) -> None:
        """Close all connections. Their clients ask Temporal themselves."""
        acceptor, self._acceptor = self._acceptor, None
        if acceptor is not None:
            acceptor.close()
        tasks = [task for task in self._working.values() if task is not None]
        for connection in list(self._working):
            connection.abort()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def __aenter__(self) -> DriverServer:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    # -- called by connections ----------

    def _accept(self, caller: AcceptedConnection) -> ServerConnection:
        return ServerConnection(self, Handshake.server({NAME: self._key}.get), next(self._numbers), caller)

    def began(self, connection: ServerConnection) -> None:
        self._working[connection] = None
        if self._acceptor is None:
            connection.abort()

    def admitted(self, connection: ServerConnection) -> None:
        connection.rest()

    def arrived(self, connection: ServerConnection, heads: list[bytes]) -> None:
        if len(heads) > 1 or self._working[connection] is not None:
            raise InternalError("a client asks again before it has the answer")
        connection.work()
        self._working[connection] = spawn(self._answer(connection, decoded(AnyRequest, heads[0])))

    def ended(self, connection: ServerConnection, why: Exception | None) -> None:
        task = self._working.pop(connection, None)
        if task is not None:
            task.cancel()
        if why is not None:
            _log.debug("a request's connection has ended: %s", why)

    async def _answer(self, connection: ServerConnection, request: Any) -> None:
        answer = await _answered(self._service, request)
        if connection in self._working:
            self._working[connection] = None
            connection.rest()
            connection.write([encoded(answer)])


async def _answered(service: RunService, request: Any) -> RunAnswer:
    try:
        return RunAnswer(await service.ask(request))
    except TreadleError as error:
        kind = next((kind.__name__ for kind in type(error).__mro__ if kind.__name__ in ERRORS), "InternalError")
        return RunAnswer(error=kind, message=error.message, hint=error.hint)
    except Exception as error:  # noqa: BLE001  # the client reports it
        _log.exception("a request failed: %s", type(request).__name__)
        return RunAnswer(error="InternalError", message=f"the driver: {type(error).__name__}: {error}")
