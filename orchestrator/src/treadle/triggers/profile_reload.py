"""Records which profile each running service has read, to detect later changes of the file.

deployments/profiles/<instance>     name and digest of the profile, sealed, rewritten every TELL_EVERY seconds
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from contextlib import suppress

import msgspec
from msgspec import Struct

from treadle.orchestrator.environment.profile import Profile
from treadle.primitives import sealing
from treadle.primitives.encoding.decoding import decoded
from treadle.primitives.errors import MissingError, TreadleError
from treadle.primitives.stores.store import Store

_log = logging.getLogger("treadle.triggers")
_ROOT = "deployments/profiles"
TELL_EVERY = 20.0
"""Seconds."""
STALE = 60.0
"""Seconds after which a service counts as ended."""


class ServiceProfile(Struct, frozen=True):
    """The profile that a service uses."""

    profile: str | None
    digest: str
    time: float
    """Time of this record, in seconds since the epoch."""


class ServiceProfiles:
    """The profiles of one store's services."""

    def __init__(self, store: Store, key: bytes) -> None:
        self._store = store
        self._objects = sealing.SealedStore(store, sealing.purpose_key(key, b"treadle service profiles"))

    async def keep_told(self, instance: str, profile: Profile) -> None:
        """Record periodically the profile that this service uses. Raises only CancelledError."""
        try:
            while True:
                try:
                    await asyncio.to_thread(self.tell, instance, profile, time.time())
                except TreadleError as error:
                    _log.info("the profile of this service is not told: %s", error)
                await asyncio.sleep(TELL_EVERY)
        finally:
            with suppress(TreadleError):
                self._store.delete([f"{_ROOT}/{instance}"])

    def tell(self, instance: str, profile: Profile, now: float) -> None:
        """Raises StoreError."""
        found = ServiceProfile(profile.name, digest(profile), now)
        self._objects.put(f"{_ROOT}/{instance}", msgspec.msgpack.encode(found))

    def outdated(self, profile: Profile, now: float) -> list[str]:
        """Running services that have read different content for the profile of that name. Raises StoreError."""
        names = sorted(info.name for info in self._store.list(f"{_ROOT}/"))
        return [name.rpartition("/")[2] for name in names if self._is_outdated(name, profile, now)]

    def _is_outdated(self, name: str, profile: Profile, now: float) -> bool:
        try:
            found = decoded(ServiceProfile, name, self._objects.get(name))
        except MissingError:
            return False
        return found.profile == profile.name and found.digest != digest(profile) and now < found.time + STALE


def digest(profile: Profile) -> str:
    """SHA-256, in hex, of all settings."""
    return hashlib.sha256(profile.model_dump_json().encode()).hexdigest()
