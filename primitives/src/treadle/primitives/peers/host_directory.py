"""Where the servers of a run's hosts are: sealed objects `runs/<run>/hosts/<host id>`, new after each restart."""

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


class Entry(msgspec.Struct, frozen=True):
    """How the blocks of a host are reached."""

    address: str
    """Where it can be dialled; empty: nowhere."""
    member: str = ""
    """What its coordinator knows it by: members of the same one reach it through their gateways."""
    gateway: str = ""
    """Where processes of this host find theirs."""


def announce(
    store: Store, run: str, key: bytes, host_id: str, address: str, member: str = "", gateway: str = ""
) -> None:
    """This host's blocks of the run are served there from now on (see `Entry`). Raises StoreError."""
    entry = msgspec.msgpack.encode(Entry(address, member, gateway))
    SealedStore(store, key).put(_name(run, host_id), entry)


def resolve(store: Store, run: str, key: bytes, host_id: str) -> Entry | None:
    """What was announced last; None: there is nothing. Raises StoreError, and CorruptError for a forged one."""
    name = _name(run, host_id)
    try:
        data = SealedStore(store, key).get(name)
    except MissingError:
        return None
    return decoded(Entry, name, data)


def through(gateway: str, member: str) -> str:
    """The address of a member behind a gateway."""
    return f"{gateway}/{member}"


def behind(address: str) -> str:
    """The member that such an address names; empty for that of a server."""
    return address.partition("://")[2].partition("/")[2]


class Directory:
    """Addresses of a run's hosts, asked from the store once and again after `forget`. Thread-safe."""

    def __init__(self, store: Store, run: str, key: bytes, here: str = "") -> None:
        """`here`: the id of this host, which may have a gateway."""
        self._store, self._run, self._key, self._here = store, run, key, here
        self._lock = threading.Lock()
        self._known: dict[str, Entry] = {}

    def resolve(self, host_id: str) -> tuple[str, ...] | None:
        """Addresses of a host's server, the best one first; none of them: it is there, and out of reach from here.

        None: nothing was announced. Raises as `resolve` does.
        """
        entry = self.entry(host_id)
        if entry is None:
            return None
        return _addresses(entry, self.entry(self._here) if entry.member and self._here else None)

    def forget(self, host_id: str, addresses: tuple[str, ...]) -> None:
        """It did not answer there: ask the store next time, as a server that restarts may be elsewhere."""
        with self._lock:
            entry = self._known.get(host_id)
            if entry is not None and _addresses(entry, self._known.get(self._here)) == addresses:
                del self._known[host_id]
                self._known.pop(self._here, None)

    def entry(self, host_id: str) -> Entry | None:
        """What it announced. Raises as `resolve` does."""
        with self._lock:
            if host_id in self._known:
                return self._known[host_id]
        entry = resolve(self._store, self._run, self._key, host_id)
        if entry is not None:
            with self._lock:
                self._known[host_id] = entry
        return entry


def _addresses(entry: Entry, here: Entry | None) -> tuple[str, ...]:
    direct = (entry.address,) if entry.address else ()
    if here is not None and here.member and here.member == entry.member:  # blocks that it took over from another one
        return (here.gateway,)
    gateway = (here.gateway if here else "") or local_gateways.gateway_to(entry.member)
    return (*direct, through(gateway, entry.member)) if gateway and entry.member else direct


def _name(run: str, host_id: str) -> str:
    return check_name(f"runs/{run_folder(run)}/hosts/{host_id}")
