"""Where the servers of a run's hosts are: sealed objects `runs/<run>/hosts/<host id>`, new after each restart."""

from __future__ import annotations

import threading

import msgspec

from ..decoding import known
from ..errors import MissingError
from ..run_names import run_folder
from ..store import Store
from ..trust import seal, unseal
from ..whole_files import check_name


class _Entry(msgspec.Struct, frozen=True):
    address: str


def announce(store: Store, run: str, key: bytes, host_id: str, address: str) -> None:
    """This host's blocks of the run are served at `address` from now on. Raises StoreError."""
    name = _name(run, host_id)
    store.put(name, seal(key, name, msgspec.msgpack.encode(_Entry(address))))


def resolve(store: Store, run: str, key: bytes, host_id: str) -> str | None:
    """The address announced last; None: there is none. Raises StoreError, and CorruptError for a forged one."""
    name = _name(run, host_id)
    try:
        data = store.get(name)
    except MissingError:
        return None
    return msgspec.msgpack.decode(unseal(key, name, data), type=known(_Entry)).address


class Directory:
    """Addresses of a run's hosts, asked from the store once and again after `forget`. Thread-safe."""

    def __init__(self, store: Store, run: str, key: bytes) -> None:
        self._store, self._run, self._key = store, run, key
        self._lock = threading.Lock()
        self._known: dict[str, str] = {}

    def resolve(self, host_id: str) -> str | None:
        """The address of a host's server; None: no server has announced itself. Raises as `resolve` does."""
        with self._lock:
            if host_id in self._known:
                return self._known[host_id]
        address = resolve(self._store, self._run, self._key, host_id)
        if address is not None:
            with self._lock:
                self._known[host_id] = address
        return address

    def forget(self, host_id: str, address: str) -> None:
        """It did not answer there: ask the store next time, as a server that restarts may be elsewhere."""
        with self._lock:
            if self._known.get(host_id) == address:
                del self._known[host_id]


def _name(run: str, host_id: str) -> str:
    return check_name(f"runs/{run_folder(run)}/hosts/{host_id}")
