"""Authority to write the bytes that treadle decodes: one deployment key, one key for each run, and sealed objects.

Pickle is code, so no object of a store is decoded before its MAC was checked under the run's key.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import CorruptError, UsageError
from .stores.atomic_files import Buffer, create_file

if TYPE_CHECKING:
    from .stores.store import Store

KEY_BYTES = 32
_MAGIC = b"treadle\x01"
_MAC_BYTES = 32
_LONG = 8
"""Objects after which a chain is expected to go on."""
_NEW_KEY = "a new one is made, and runs of the old one cannot be resumed."
_SALT = b"treadle deployment key"


def load_or_create_key(path: str | os.PathLike[str]) -> bytes:
    """Return the 32 bytes of the deployment key at `path`; a missing key is created atomically, with mode 0600.

    Raises UsageError for a file that another user owns, that others may read, or that is not a key.
    """
    path = Path(path)
    try:
        return load_key(path)
    except FileNotFoundError:
        create_file(path, [secrets.token_bytes(KEY_BYTES)])  # of two creators one wins, and both read its key
        return load_key(path)


def load_key(path: str | os.PathLike[str]) -> bytes:
    """Return the 32 bytes of an existing key. Raises the errors of `load_or_create_key`, and FileNotFoundError."""
    with open(path, "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise UsageError(f"the deployment key {path} is not a regular file", "Name a file of 32 random bytes.")
        if status.st_uid not in (os.geteuid(), 0):
            raise UsageError(
                f"the deployment key {path} belongs to user {status.st_uid}, not to you ({os.geteuid()})",
                "Run as its owner, or name a key of your own.",
            )
        if status.st_mode & 0o077:
            raise UsageError(
                f"the deployment key {path} has mode {stat.S_IMODE(status.st_mode):04o}: others may have read it",
                f"If nobody did: chmod 600 {path}. Otherwise remove it; {_NEW_KEY}",
            )
        key = file.read(KEY_BYTES + 1)
    if len(key) != KEY_BYTES:
        raise UsageError(
            f"the deployment key {path} is not exactly {KEY_BYTES} bytes long",
            f"Restore it from where it was copied, or remove it; {_NEW_KEY}",
        )
    return key


def run_key(deployment_key: bytes, run_id: str) -> bytes:
    """Derive the key of one run: HKDF-SHA256 (RFC 5869) of the deployment key, with the run's id as the context."""
    return purpose_key(deployment_key, b"treadle run\x00" + run_id.encode())


def purpose_key(deployment_key: bytes, purpose: bytes) -> bytes:
    """Derive a key for one purpose, as `run_key` does: a holder of it cannot derive the keys of other purposes."""
    return hkdf(deployment_key, salt=_SALT, info=purpose)


def hkdf(secret: bytes, *, salt: bytes, info: bytes, length: int = KEY_BYTES) -> bytes:
    """Extract and expand with HMAC-SHA256 (RFC 5869, sections 2.2 and 2.3); at most 8,160 bytes."""
    pseudorandom = hmac.digest(salt, secret, "sha256")
    output, block = b"", b""
    for counter in range(1, -(-length // 32) + 1):
        block = hmac.digest(pseudorandom, block + info + bytes([counter]), "sha256")
        output += block
    return output[:length]


def seal(key: bytes, name: str, payload: Buffer) -> bytes:
    """Return `payload` with a MAC that only holders of `key` can make, and only for an object of this `name`.

    Layout: 8 bytes magic and version, 32 bytes HMAC-SHA256, payload.
    """
    return b"".join((_MAGIC, _mac(key, name, payload), payload))


def unseal(key: bytes, name: str, data: Buffer) -> memoryview:
    """Return the payload that `seal` sealed with the same key and name; raises CorruptError otherwise."""
    view = memoryview(data).cast("B").toreadonly()
    start = len(_MAGIC) + _MAC_BYTES
    if len(view) < start or view[: len(_MAGIC)] != _MAGIC:
        raise CorruptError(
            f"{name} is not a sealed object of treadle, or was cut off",
            "Something else wrote it, or another version of treadle did: look at what wrote to the store.",
        )
    if not hmac.compare_digest(view[len(_MAGIC) : start], _mac(key, name, view[start:])):
        raise CorruptError(
            f"{name} was not written with this deployment's key, or was changed since",
            "Use the deployment key of the host that started the run; if that is the key in use, "
            "somebody else can write to the store: its contents are not to be trusted.",
        )
    return view[start:]


def pinned(name: str, data: Buffer, digest: str) -> memoryview:
    """Return the payload of a sealed object whose SHA-256 the caller has from a verified source.

    Needs no key, so many runs can read an object that was sealed once. Raises CorruptError for another payload.
    """
    payload = memoryview(data).cast("B").toreadonly()[len(_MAGIC) + _MAC_BYTES :]
    if not hmac.compare_digest(hashlib.sha256(payload).hexdigest(), digest):
        hint = "Somebody else can write to the store: its contents are not to be trusted."
        raise CorruptError(f"{name} is not what it was when the run was submitted", hint)
    return payload


class SealedStore:
    """The objects of a store that are sealed under one key, each for its own name."""

    def __init__(self, store: Store, key: bytes) -> None:
        self._store, self._key = store, key

    def get(self, name: str) -> memoryview:
        """Return the payload. Raises MissingError, StoreError, and CorruptError when no holder of the key wrote it
        there."""
        return unseal(self._key, name, self._store.get(name))

    def put(self, name: str, payload: Buffer) -> None:
        """Seal the payload and write it, as `Store.put` does."""
        self._store.put(name, seal(self._key, name, payload))

    def create(self, name: str, payload: Buffer) -> bool:
        """Seal the payload and write it unless the object exists, as `Store.create` does."""
        return self._store.create(name, seal(self._key, name, payload))

    def prepare(self, name: str, number: int) -> None:
        """`name` is the next object of a chain, with this number. Prepares for it if the chain is long: few go on."""
        if number > _LONG:
            self._store.prepare(name)


def _mac(key: bytes, name: str, payload: Buffer) -> bytes:
    """Return the MAC. The length of the name comes first, so that no byte can move between name and payload."""
    encoded = name.encode()
    mac = hmac.new(key, _MAGIC + len(encoded).to_bytes(8, "little") + encoded, hashlib.sha256)
    mac.update(payload)
    return mac.digest()
