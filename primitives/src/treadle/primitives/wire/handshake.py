"""The mutual challenge: each side proves that it holds the run's key, without revealing it, before any other message.

    client -> server   opening:   magic and version, client's nonce, run id
    server -> client   challenge: server's nonce, MAC as server         (or: denied)
    client -> server   proof:     MAC as client
    server -> client   welcome:   empty

A MAC is HMAC-SHA256 under a key derived from the run's. It covers the role, the run, both nonces, and the digest of the
server's TLS certificate as this side sees it (empty on loopback). A man in the middle shows another certificate, so no
CA is needed (channel binding of type tls-server-end-point, RFC 5929). The roles differ, so a MAC cannot be reflected.
All fields have fixed positions, and nothing is decoded.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable

from ..errors import InternalError
from ..sealing import hkdf
from .errors import NotAuthentic

KeyOf = Callable[[str], bytes | None]
"""The key of a run, or None when the run is not served here."""
MESSAGE_LIMIT = 1024
"""Limit of a handshake message, in bytes."""
_MAGIC = b"treadle wire\x01"
_NONCE = 32
_MAC = 32
_OPENING, _CHALLENGE, _PROOF, _WELCOME, _DENIED = b"O", b"C", b"P", b"W", b"D"
_HINT = "Another deployment, run or program may use the address now; otherwise somebody answers in its place."


class Handshake:
    """One side of the exchange: pass received messages in and send the answers, until it is `done`.

    `certificate` is the SHA-256 digest of the server's TLS certificate as this side sees it; b"" without TLS.
    """

    def __init__(self, run: str, key: bytes | None, key_of: KeyOf | None, certificate: bytes) -> None:
        self.run = run
        self.done = False
        """Each side knows that both hold the key."""
        self.trusted = False
        """The other side has proved that it holds the key."""
        self._key = _derived(key) if key is not None else b""
        self._key_of = key_of
        self._certificate = certificate
        self._nonces: tuple[bytes, bytes] = (b"", b"")

    @staticmethod
    def client(run: str, key: bytes, certificate: bytes = b"") -> Handshake:
        """The dialling side; it begins with `opening`."""
        return Handshake(run, key, None, certificate)

    @staticmethod
    def server(key_of: KeyOf, certificate: bytes = b"") -> Handshake:
        """The dialled side; it learns the run's id, `run`, from the client."""
        return Handshake("", None, key_of, certificate)

    @property
    def is_server(self) -> bool:
        return self._key_of is not None

    def opening(self, certificate: bytes = b"") -> bytes:
        """The client's first message. `certificate`: the server's, if it was not known before."""
        self._certificate = self._certificate or certificate
        self._nonces = (secrets.token_bytes(_NONCE), b"")
        return _OPENING + _MAGIC + self._nonces[0] + self.run.encode()

    def receive(self, message: bytes) -> bytes:
        """Return the answer; b"": none. Raises NotAuthentic; then send `last_words`, if any."""
        if self.done:
            raise InternalError("a message for a handshake that is done")
        kind = message[:1]
        if self._key_of is None:
            return self._welcomed(kind) if self.trusted else self._prove(kind, message[1:])
        if not self._key:
            return self._challenge(kind, message[1:])
        return self._check(kind, message[1:])

    @property
    def last_words(self) -> bytes:
        """A server's final message to a client whose run it does not know."""
        return _DENIED if self._key_of is not None and not self._key else b""

    def _challenge(self, kind: bytes, message: bytes) -> bytes:
        assert self._key_of is not None
        start = len(_MAGIC) + _NONCE
        if kind != _OPENING or len(message) < start or message[: len(_MAGIC)] != _MAGIC:
            raise NotAuthentic("a caller does not speak this protocol", "Something else dialled this port.")
        run = message[start:].decode("utf-8", "replace")
        key = self._key_of(run)
        if key is None:
            raise NotAuthentic(f"a caller asks for run {run[:64]!r}, which is not served here", "It may have ended.")
        self.run, self._key = run, _derived(key)
        self._nonces = (message[len(_MAGIC) : start], secrets.token_bytes(_NONCE))
        return _CHALLENGE + self._nonces[1] + self._mac(b"server")

    def _prove(self, kind: bytes, message: bytes) -> bytes:
        if kind == _DENIED:
            raise NotAuthentic(f"the other side does not serve run {self.run}", "It may have ended there.")
        if kind != _CHALLENGE or len(message) != _NONCE + _MAC:
            raise NotAuthentic("the other side does not speak this protocol", _HINT)
        self._nonces = (self._nonces[0], message[:_NONCE])
        if not hmac.compare_digest(message[_NONCE:], self._mac(b"server")):
            raise NotAuthentic("the other side does not hold the run's key", _HINT)
        self.trusted = True
        return _PROOF + self._mac(b"client")

    def _welcomed(self, kind: bytes) -> bytes:
        if kind != _WELCOME:
            raise NotAuthentic("the other side does not speak this protocol", _HINT)
        self.done = True
        return b""

    def _check(self, kind: bytes, message: bytes) -> bytes:
        if kind != _PROOF or not hmac.compare_digest(message, self._mac(b"client")):
            raise NotAuthentic(f"a caller does not hold the key of run {self.run}", _HINT)
        self.done = self.trusted = True
        return _WELCOME

    def _mac(self, role: bytes) -> bytes:
        """All fields but the last two have a fixed length; the lengths of those two come before them."""
        run = self.run.encode()
        lengths = bytes([len(self._certificate)]) + len(run).to_bytes(4, "big")
        text = b"".join((_MAGIC, role, *self._nonces, lengths, self._certificate, run))
        return hmac.digest(self._key, text, "sha256")


def _derived(key: bytes) -> bytes:
    """Derive a separate key: a MAC that authenticates a connection must never seal an object."""
    return hkdf(key, salt=b"treadle wire", info=b"challenge")
