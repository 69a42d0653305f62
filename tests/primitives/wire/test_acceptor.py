"""Connections that an acceptor ends leave nothing behind, whether the caller left or the time is over."""

from __future__ import annotations

import asyncio
import gc
import socket
import weakref
from asyncio import sslproto
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from eventually import eventually_async

from treadle.primitives.wire import tls_identity
from treadle.primitives.wire.acceptor import AcceptedConnection, Acceptor
from treadle.primitives.wire.unauthenticated import Strangers


class Silent(asyncio.Protocol):
    def __init__(self, caller: AcceptedConnection) -> None:
        self._caller = caller

    def connection_made(self, transport: Any) -> None:
        self._caller.made(transport)

    def connection_lost(self, error: Exception | None) -> None:
        self._caller.gone()


class Buffers(weakref.WeakSet[Any]):
    """The existing TLS connections, each with its buffer."""

    made = 0


@pytest.fixture
def buffers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Buffers]:
    """The garbage collector is off in the meantime."""
    found = Buffers()
    make = sslproto.SSLProtocol.__init__

    def made(self: Any, *arguments: Any, **named: Any) -> None:
        make(self, *arguments, **named)
        found.add(self)
        found.made += 1

    monkeypatch.setattr(sslproto.SSLProtocol, "__init__", made)
    gc.disable()
    yield found
    gc.enable()


@pytest.mark.parametrize("goes", [True, False], ids=["caller goes", "time is over"])
async def test_tls_caller_that_is_gone_leaves_no_buffer(buffers: Buffers, tmp_path: Path, goes: bool) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    strangers = Strangers[AcceptedConnection](8, 60.0 if goes else 0.2)
    acceptor = Acceptor(listener, "test", strangers, Silent, tls=tls_identity(tmp_path).context())
    callers = [socket.create_connection(listener.getsockname()) for _ in range(4)]
    await eventually_async(lambda: buffers.made == 4)
    for caller in callers if goes else ():
        caller.close()
    await eventually_async(lambda: not buffers)
    acceptor.close()
    for caller in callers:
        caller.close()
