"""Encryption off loopback: each server has a self-signed certificate, which the handshake authenticates."""

from __future__ import annotations

import functools
import hashlib
import os
import ssl
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from ..errors import UsageError
from ..stores.atomic_files import Buffer, create_file
from .transports import WANT_READ, WANT_WRITE

_RECORDS = 256 << 10
"""Bytes passed to OpenSSL at once; after WANT_WRITE the same bytes must be passed again."""
_YEARS = 20
"""Clients ignore the dates: they identify the certificate by its digest."""


class Identity(NamedTuple):
    """A server's certificate and private key."""

    path: Path
    """One PEM file (0600): key, then certificate."""
    digest: bytes
    """SHA-256 of the certificate (DER)."""

    def context(self) -> ssl.SSLContext:
        """The context for a server."""
        return _server_context(self)


def tls_identity(folder: str | os.PathLike[str]) -> Identity:
    """Return the identity kept in `folder`. It is created once, so that all servers of a host share it.

    Raises UsageError when it must be created and the package `cryptography` is missing.
    """
    path = Path(folder) / "tls.pem"
    if not path.exists():
        create_file(path, [_new_pem()])  # of two creators one wins, and both use its file
    return Identity(path, hashlib.sha256(_certificate_der(path)).digest())


def identity_of(pem: str) -> Identity:
    """Return the identity of a private key and its certificate, given as PEM. Its path is valid until this returns.

    OpenSSL can only read a file, so the PEM goes into a memfd, which has no name that other code could open.
    """
    with open(os.memfd_create("tls"), "w", encoding="ascii") as file:
        file.write(pem)
        file.flush()
        found = Identity(Path(f"/proc/self/fd/{file.fileno()}"), hashlib.sha256(_der(pem)).digest())
        found.context()  # the context keeps the content of the file
    return found


@functools.lru_cache(8)
def _server_context(identity: Identity) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_cert_chain(identity.path)
    return context


@functools.cache
def client_context() -> ssl.SSLContext:
    """Accept any certificate: the handshake that follows fails unless both sides saw the same one."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def server_digest(connection: ssl.SSLSocket | ssl.SSLObject) -> bytes:
    """Return the SHA-256 of the certificate that the server showed to this client."""
    return hashlib.sha256(connection.getpeercert(binary_form=True) or b"").digest()


class Encrypted:
    """TLS over TCP. OpenSSL keeps one state for both directions, so only one thread enters it at a time."""

    buffers = True

    def __init__(self, sock: ssl.SSLSocket) -> None:
        self._sock = sock
        self._lock = threading.Lock()

    def secure(self) -> int:
        def handshake() -> int:
            self._sock.do_handshake()
            return 0

        return self._attempt(handshake)

    def certificate(self) -> bytes:
        return server_digest(self._sock)

    def send(self, views: Sequence[Buffer]) -> int:
        first = b"".join(views) if sum(map(len, views)) <= _RECORDS else views[0]
        return self._attempt(lambda: self._sock.send(memoryview(first)[:_RECORDS]))

    def receive(self, view: memoryview) -> int:
        return self._attempt(lambda: self._sock.recv_into(view))

    def send_file(self, descriptor: int, offset: int, count: int) -> int:
        piece = os.pread(descriptor, min(count, _RECORDS), offset)
        return self.send([piece]) if piece else 0

    def _attempt(self, operation: Callable[[], int]) -> int:
        try:
            with self._lock:
                return operation()
        except ssl.SSLWantReadError:
            return WANT_READ
        except ssl.SSLWantWriteError:
            return WANT_WRITE


def _certificate_der(path: Path) -> bytes:
    return _der(path.read_text("ascii"))


def _der(pem: str) -> bytes:
    return ssl.PEM_cert_to_DER_cert(pem[pem.index("-----BEGIN CERTIFICATE-----") :])


def _new_pem() -> bytes:
    """Return an ECDSA key on P-256 and its self-signed certificate."""
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError as error:
        raise UsageError(
            "connections off loopback need the package cryptography", "Install treadle-primitives[tls]."
        ) from error
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "treadle")])
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=365 * _YEARS))
    certificate = builder.sign(key, hashes.SHA256())
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return private + certificate.public_bytes(serialization.Encoding.PEM)
