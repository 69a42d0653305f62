"""A connection that may become the path: the proof over a non-blocking socket."""

from __future__ import annotations

import errno
import selectors
import socket

from .path_probe import HEAD_BYTES, Proof

_CHUNK = 64 * 1024


class Candidate:
    """A socket and its proof. An accepted socket has no proof until its head names the token."""

    def __init__(self, sock: socket.socket, proof: Proof | None = None, head: bytes = b"") -> None:
        self.sock = sock
        self.proof = proof
        self.head = head
        self._pending = bytearray(proof.head if proof else b"")
        sock.setblocking(False)

    @property
    def proved(self) -> bool:
        return self.proof is not None and self.proof.proved and not self._pending

    @property
    def says_which(self) -> bool:
        """An accepted socket's head has arrived: `begin` its proof, or pass it on."""
        return self.proof is None and len(self.head) == HEAD_BYTES

    @property
    def interest(self) -> int:
        """The events to wait for, as a mask of `selectors`."""
        reading = selectors.EVENT_READ if self._wanted else 0
        return reading | (selectors.EVENT_WRITE if self._pending else 0)

    def begin(self, proof: Proof) -> None:
        self.proof = proof
        self._pending += proof.head + proof.feed(self.head)

    def exchange(self) -> None:
        """Receive and send as much as possible without blocking. Raises NotProved, and OSError when the connection
        ended.
        """
        self._receive()
        if self._pending:
            try:
                del self._pending[: self.sock.send(self._pending)]
            except BlockingIOError:
                return

    @property
    def _wanted(self) -> int:
        return self.proof.wanted if self.proof else HEAD_BYTES - len(self.head)

    def _receive(self) -> None:
        if not self._wanted:
            return
        try:
            data = self.sock.recv(min(self._wanted, _CHUNK))
        except BlockingIOError:
            return
        if not data:
            raise ConnectionResetError(errno.ECONNRESET, "the other side closed the connection")
        if self.proof:
            self._pending += self.proof.feed(data)
        else:
            self.head += data
