"""A path between a reader and a server with injected faults: data, one fault for each connection in turn.

with FaultyPath(server.address, [Fault("cut", after=100), HEALTHY]) as path:
    client.fetch(path.address, ...)      # the first connection breaks after 100 bytes of answers
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from treadle.primitives.wire import parse

_PIECE = 64 << 10
_REMEMBERED = 4096


@dataclass(frozen=True)
class Fault:
    """The fault of one direction of a connection. The other direction is healthy."""

    kind: Literal["none", "silent", "reset", "cut", "stall", "corrupt", "drip"]
    """The kind of fault.

    silent   accepted and never answered
    reset    accepted and reset
    cut      both sides see the end
    stall    later bytes are swallowed while the connection stays
    corrupt  one byte is changed
    drip     a few bytes at a time
    """
    after: int = 0
    """Bytes that pass unchanged."""
    requests: bool = False
    """True: the direction from the reader to the server, instead of the answers."""

    def __str__(self) -> str:
        return f"{self.kind}-{'requests' if self.requests else 'answers'}-{self.after}"


HEALTHY = Fault("none")


class FaultyPath:
    """Listens at `address` and forwards to the server. The last fault applies to all further connections."""

    def __init__(self, server: str, faults: Sequence[Fault]) -> None:
        target = parse(server)
        self._target = (target.host, target.port)
        self._faults = list(faults)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"{target.scheme}://127.0.0.1:{self._listener.getsockname()[1]}"
        self.accepted = 0
        """The number of connections so far."""
        self.passed: list[bytes] = []
        """The forwarded pieces of both directions: the beginning of each."""
        self.sizes: list[int] = []
        """The size of each piece."""
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._closing = False
        self._start(self._accept)

    def __enter__(self) -> FaultyPath:
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._closing = True
            for sock in [self._listener, *self._sockets]:
                _shut(sock)
        for thread in self._threads:  # the list is complete once its first thread, which accepts, has ended
            thread.join()
        for sock in [self._listener, *self._sockets]:
            sock.close()

    def _start(self, work: object, *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments, name="faulty path")  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                reader, _ = self._listener.accept()
            except OSError:
                return
            fault = self._faults[min(self.accepted, len(self._faults) - 1)]
            self.accepted += 1
            with self._lock:
                self._sockets.append(reader)
                if self._closing:
                    return
            self._connect(reader, fault)

    def _connect(self, reader: socket.socket, fault: Fault) -> None:
        if fault.kind == "silent":
            return
        if fault.kind == "reset":
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            reader.close()
            return
        server = socket.create_connection(self._target, timeout=30)
        server.settimeout(None)
        with self._lock:
            self._sockets.append(server)
            if self._closing:
                return
        self._start(self._pump, reader, server, fault if fault.requests else HEALTHY)
        self._start(self._pump, server, reader, HEALTHY if fault.requests else fault)

    def _pump(self, source: socket.socket, sink: socket.socket, fault: Fault) -> None:
        """Forward bytes until either end is closed, then close both."""
        with contextlib.suppress(OSError):
            for piece in _harmed(source, fault):
                sink.sendall(piece)
                self.passed.append(piece[:_REMEMBERED])
                self.sizes.append(len(piece))
        _shut(source)
        _shut(sink)


def _harmed(source: socket.socket, fault: Fault) -> Iterator[bytes]:
    position = 0
    while piece := source.recv(_PIECE):
        until = fault.after - position
        position += len(piece)
        if until >= len(piece) or fault.kind == "none":
            yield piece
            continue
        until = max(until, 0)
        if fault.kind == "cut":
            yield piece[:until]
            return
        if fault.kind == "stall":
            piece = piece[:until]
        elif fault.kind == "corrupt" and position - len(piece) <= fault.after:
            piece = piece[:until] + bytes([piece[until] ^ 0x20]) + piece[until + 1 :]
        if fault.kind == "drip":
            yield from _drops(piece)
        else:
            yield piece


def _drops(piece: bytes) -> Iterator[bytes]:
    for start in range(0, len(piece), 97):
        time.sleep(0.0005)
        yield piece[start : start + 97]


def _shut(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
