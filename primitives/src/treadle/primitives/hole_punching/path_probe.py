"""A path proves itself with real bytes before it is used. Sans-IO: bytes in, bytes out.

A connection alone proves little. NATs and firewalls accept on behalf of hosts, cut connections after the handshake, or
lead to a third party with the same private address (Ford et al., section 3.4). So both sides send

    nonce       8 bytes of magic, 8 bytes that name the token, 16 random bytes
    stream      64 KiB made from the token, both nonces and the sender's part: more than one window, and incompressible
    receipt     32 bytes HMAC-SHA256 over the same, once the other side's stream has arrived whole

and when the leader has its receipt, and wants the path, it sends

    choice      32 bytes HMAC-SHA256 over the same

This exchange does not identify the other side: the mutual challenge of `wire`, which comes next on the path, does.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets

from ..errors import TreadleError

STREAM_BYTES = 64 * 1024
_MAGIC = b"treadle\x02"
_NAME_BYTES = 8
_NONCE_BYTES = 16
HEAD_BYTES = len(_MAGIC) + _NAME_BYTES + _NONCE_BYTES


class NotProved(TreadleError):
    """Bytes on the path differ from the bytes that the holder of the token would send."""


class Proof:
    """One side of the exchange over one path.

    Send `head` at once, then the answers of `feed`. Read at most `wanted` bytes at a time, since bytes after the proof
    belong to the next protocol. `proved` is final for the follower; the leader then sends `choose()`.
    """

    def __init__(self, token: bytes, leads: bool) -> None:
        self._token = token
        self._leads = leads
        self._nonce = secrets.token_bytes(_NONCE_BYTES)
        self.head = _MAGIC + token_name(token) + self._nonce
        self.proved = False
        self._received = bytearray()
        self._step = 0
        self._expected = [b"", b"", b"", b""]
        self._context = b""

    @property
    def wanted(self) -> int:
        """Number of bytes that the current step still needs from the other side; 0 once proved."""
        return 0 if self.proved else self._size - len(self._received)

    def feed(self, data: bytes) -> bytes:
        """Return the bytes to send in answer, in order; may be empty. Raises NotProved."""
        answer = b""
        while data and not self.proved:
            taken, data = data[: self.wanted], data[self.wanted :]
            self._received += taken
            if self._step and not hmac.compare_digest(self._received, self._expected_start()):
                raise NotProved(
                    "the other side of the path does not hold its token", "It is somebody else; dial again."
                )
            if not self.wanted:
                answer += self._advance()
        if data:
            raise NotProved("more came over the path than its proof", "It is somebody else; dial again.")
        return answer

    def choose(self) -> bytes:
        """Return the message that informs the follower that this path is used."""
        return self._mac(b"choice", self._leads)

    # -- steps: 0 head, 1 stream, 2 receipt, 3 choice (follower only)

    @property
    def _size(self) -> int:
        return HEAD_BYTES if self._step == 0 else len(self._expected[self._step])

    def _expected_start(self) -> bytes:
        return self._expected[self._step][: len(self._received)]

    def _advance(self) -> bytes:
        received = bytes(self._received)
        self._received.clear()
        self._step += 1
        self.proved = self._step == (3 if self._leads else 4)
        if self._step == 1:
            return self._begin(received)
        return self._mac(b"receipt", self._leads) if self._step == 2 else b""

    def _begin(self, head: bytes) -> bytes:
        if not hmac.compare_digest(head[:-_NONCE_BYTES], self.head[:-_NONCE_BYTES]):
            raise NotProved("the other side of the path does not know its token", "It is somebody else; dial again.")
        theirs = head[-_NONCE_BYTES:]
        self._context = self._nonce + theirs if self._leads else theirs + self._nonce
        other = not self._leads
        self._expected = [b"", self._stream(other), self._mac(b"receipt", other), self._mac(b"choice", other)]
        return self._stream(self._leads)

    def _stream(self, leads: bool) -> bytes:
        return hashlib.shake_256(self._mac(b"stream", leads)).digest(STREAM_BYTES)

    def _mac(self, purpose: bytes, leads: bool) -> bytes:
        part = b"leader" if leads else b"follower"
        return hmac.digest(self._token, b"\x00".join((b"treadle path", purpose, part, self._context)), "sha256")


def token_name(token: bytes) -> bytes:
    """Name a token without revealing it."""
    return hmac.digest(token, b"treadle path\x00name", "sha256")[:_NAME_BYTES]


def named_by(head: bytes) -> bytes:
    """Return the name of the token in a head."""
    return head[len(_MAGIC) : len(_MAGIC) + _NAME_BYTES]
