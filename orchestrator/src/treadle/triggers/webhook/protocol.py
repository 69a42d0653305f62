"""One connection of the hook server. Its sender is a stranger while no complete request is being answered."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import Any, cast

from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from treadle.primitives.log_rate_limit import limited_logger
from treadle.primitives.wire.acceptor import AcceptedConnection

SLOW_READER = 30.0
"""Seconds after which the kernel closes a connection whose sender does not read the answer."""
limited_logger("uvicorn.error")


class HookProtocol(H11Protocol):
    """Every request must arrive within the Acceptor's time for strangers, head and body."""

    def __init__(
        self, config: Config, server_state: ServerState, app_state: dict[str, Any], *, caller: AcceptedConnection
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
