"""Addresses of the servers of a run's hosts: sealed objects `runs/<run>/hosts/<host id>`, replaced at each restart."""

from __future__ import annotations

import threading

import msgspec

from ..encoding.decoding import decoded
from ..errors import MissingError
from ..run_paths import run_folder
from ..sealing import SealedStore
from ..stores.atomic_files import check_name
from ..stores.store import Store
from . import local_gateways


class HostEntry(msgspec.Struct, frozen=True):
    """How to reach the blocks of a host."""

    address: str
    """The address of its server; empty: it cannot be dialled."""
    member: str = ""
    """Its name at a coordinator: other members of this coordinator reach it through their gateways."""
    gateway: str = ""
    """The address of the gateway for processes of this host."""


def announce(
    store: Store, run: str, key: bytes, host_id: str, address: str, member: str = "", gateway: str = ""
) -> None:
    """Record where this host's blocks of the run are served from now on (see `HostEntry`). Raises StoreError."""
    entry = msgspec.msgpack.encode(HostEntry(address, member, gateway))
    SealedStore(store, key).put(_name(run, host_id), entry)


def resolve(store: Store, run: str, key: bytes, host_id: str) -> HostEntry | None:
    """Return the latest entry; None when there is none. Raises StoreError, and CorruptError for a forged entry."""
    name = _name(run, host_id)
    try:
        data = SealedStore(store, key).get(name)
    except MissingError:
        return None
    return decoded(HostEntry, name, data)


def through(gateway: str, member: str) -> str:
    """Return the address of a member behind a gateway."""
    return f"{gateway}/{member}"


def behind(address: str) -> str:
    """Return the member that such an address names; empty for the address of a server."""
    return address.partition("://")[2].partition("/")[2]


class HostDirectory:
    """Addresses of a run's hosts, read from the store once, and again after `forget`. Thread-safe."""

    def __init__(self, store: Store, run: str, key: bytes, here: str = "") -> None:
        """`here`: the id of this host, which may have a gateway."""
        self._store, self._run, self._key, self._here = store, run, key, here
        self._lock = threading.Lock()
        self._known: dict[str, HostEntry] = {}

    def resolve(self, host_id: str) -> tuple[str, ...] | None:
        """Return addresses of a host's server, the best one first; empty when the host cannot be reached from here.

        None when the host has no entry. Raises the errors of `resolve`.
        """
        entry = self.entry(host_id)
        if entry is None:
            return None
        return _addresses(entry, self.entry(self._here) if entry.member and self._here else None)

    def forget(self, host_id: str, addresses: tuple[str, ...]) -> None:
        """Drop addresses that did not answer, and ask the store next time: a restarted server may have
        another address.
        """
        with self._lock:
            entry = self._known.get(host_id)
            if entry is not None and _addresses(entry, self._known.get(self._here)) == addresses:
                del self._known[host_id]
                self._known.pop(self._here, None)

    def entry(self, host_id: str) -> HostEntry | None:
        """Return the host's entry. Raises the errors of `resolve`."""
        with self._lock:
            if host_id in self._known:
                return self._known[host_id]
        entry = resolve(self._store, self._run, self._key, host_id)
        if entry is not None:
            with self._lock:
                self._known[host_id] = entry
        return entry


def _addresses(entry: HostEntry, here: HostEntry | None) -> tuple[str, ...]:
    direct = (entry.address,) if entry.address else ()
    # blocks that this host took over from another one
    if here is not None and here.member and here.member == entry.member:
        return (here.gateway,)
    gateway = (here.gateway if here else "") or local_gateways.gateway_to(entry.member)
    return (*direct, through(gateway, entry.member)) if gateway and entry.member else direct


def _name(run: str, host_id: str) -> str:
    return check_name(f"runs/{run_folder(run)}/hosts/{host_id}")
