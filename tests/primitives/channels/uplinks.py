"""A member's connection to its coordinator, without the rest of the member."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from primitives.wire.sides import GENEROUS, KEY, RUN, soon

from treadle.primitives.channels.io.coordinator_client import CoordinatorClient
from treadle.primitives.channels.io.socket_loop import SocketLoop
from treadle.primitives.coordinator.messages import FromMember, ToMember


@contextmanager
def uplink(
    address: str, heard: Callable[[ToMember], None], introduction: Sequence[FromMember] = ()
) -> Iterator[tuple[SocketLoop, CoordinatorClient]]:
    """Connected, and not started."""
    loop = SocketLoop()
    found = CoordinatorClient(loop, address, RUN, KEY, lambda: introduction, heard)
    try:
        found.open(soon())
        yield loop, found
    finally:
        loop.do(found.close)
        loop.close()
        for thread in threading.enumerate():
            if thread.name == "treadle-uplink":
                thread.join(GENEROUS)
