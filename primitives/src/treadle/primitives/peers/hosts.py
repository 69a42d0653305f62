"""Other hosts' blocks, for the readers of a run: located through the store, pulled from the host's server."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Iterable, Sequence

from ..encoding.references import Slice
from ..errors import MissingError
from ..stores.atomic_files import Buffer
from ..stores.shared_memory import HostFolder
from ..stores.store import Store
from ..wire import NotAuthentic, TimedOut, WireError
from .client import PeerClient
from .host_directory import HostDirectory
from .range_prefetch import Unreached

PATIENCE = 3.0
"""Seconds to wait for a host that does not answer: its driver may be restarting, and its memory outlives the driver."""
DEAD = 30.0
"""Seconds for which a host that did not answer in that time is not tried again."""
AHEAD = 4 << 20
"""Bytes pulled together with the wanted part, when the next parts are known."""
_PAUSE = 0.1
_PULL = 60.0
"""Seconds for one pull from a host that answers,"""
_SLOWEST = 2 << 20
"""and bytes per second that it must send beyond them: a large part may have to go through a store."""
_Want = tuple[str, int, int]


class HostPeers:
    """Pulls parts of blocks of one run. Thread-safe. See `blocks.Peers`."""

    def __init__(
        self, store: Store, run: str, key: bytes, host: HostFolder | None, read: Counter[str] | None = None
    ) -> None:
        """`host`: this host's folder, which keeps blocks that several of its processes want.

        `read` counts the bytes by their way:

            peer      a connection to the host that has them
            path      a path to a member that cannot be dialled
            relayed   the coordinator of such a member
            stored    the store, for such a member
            host      this host's memory, where another process had put them
        """
        self._client, self._host = PeerClient(run, key, read), host
        self._directory = HostDirectory(store, run, key, host.host_id if host is not None else "")
        self._dead: dict[str, float] = {}
        self._expected: dict[str, deque[_Want]] = {}
        self._ahead: dict[_Want, memoryview] = {}
        self._lock = threading.Lock()

    def expect(self, host: str, slices: Iterable[Slice]) -> None:
        """Announce the next parts of a host, in order, after the ones announced before."""
        with self._lock:
            expected = self._expected.setdefault(host, deque())
            expected.extend((one.name, one.part.offset, one.part.length) for one in slices)

    def forget(self) -> None:
        """Forget which parts were announced."""
        with self._lock:
            self._expected.clear()
            self._ahead.clear()

    def fetch(self, host: str, name: str, offset: int, length: int, *, shared: bool, elsewhere: bool) -> Buffer:
        """Raises MissingError when the host no longer has the block, or cannot be reached for PATIENCE seconds.

        `elsewhere`: the store has a copy, which is preferred while there is no path to a member that cannot be dialled.
        """
        want = (name, offset, length)
        with self._lock:
            known = self._ahead.pop(want, None)
        if known is not None:
            return known
        wants = [want, *self._next(host, want)]
        began, deadline = time.monotonic(), 0.0
        if self._dead.get(host, 0.0) > time.monotonic():
            raise _out_of_reach(host, name, "it did not answer a moment ago")
        while True:
            try:
                return self._pull(host, wants, shared=shared, direct=elsewhere)
            except (WireError, NotAuthentic) as error:
                if elsewhere and isinstance(error, Unreached):
                    raise _out_of_reach(host, name, error.message) from error
                # a broken connection is not silence yet
                silent_since = began if isinstance(error, TimedOut) else time.monotonic()
                deadline = deadline or silent_since + PATIENCE
                if time.monotonic() + _PAUSE > deadline:
                    self._dead[host] = time.monotonic() + DEAD
                    raise _out_of_reach(host, name, str(error)) from error
                time.sleep(_PAUSE)

    def gone(self, host: str, names: Sequence[str]) -> set[str]:
        """Return the blocks that the host does not have; all of them when it cannot be reached."""
        if self._dead.get(host, 0.0) >= time.monotonic():
            return set(names)
        addresses = self._directory.resolve(host) or ()
        for address in addresses:
            try:
                views = self._client.pull(address, [(name, 0, 0) for name in names], time.monotonic() + _PULL)
                return {name for name, view in zip(names, views, strict=True) if view is None}
            except (WireError, NotAuthentic):
                continue
        self._directory.forget(host, addresses)
        return set(names)

    def close(self) -> None:
        """Close idle connections."""
        self._client.close()

    def _next(self, host: str, want: _Want) -> list[_Want]:
        """Return the expected parts after `want`, up to `AHEAD` bytes."""
        with self._lock:
            expected = self._expected.get(host) or deque()
            if want not in expected:
                return []
            while expected.popleft() != want:
                pass
            found, size = [], want[2]
            while expected and size + expected[0][2] <= AHEAD:
                found.append(expected.popleft())
                size += found[-1][2]
            return found

    def _pull(self, host: str, wants: list[_Want], *, shared: bool, direct: bool) -> Buffer:
        addresses = self._directory.resolve(host)
        why = "has not said where it serves its blocks" if addresses is None else "cannot be dialled from here"
        error: WireError | NotAuthentic = WireError(f"host {host} {why}")
        for address in addresses or ():
            try:
                return self._pull_from(address, wants, shared=shared, direct=direct)
            except (WireError, NotAuthentic) as failed:
                error = failed
        if not (direct and isinstance(error, Unreached)):
            self._directory.forget(host, addresses or ())
        raise error

    def _pull_from(self, address: str, wants: list[_Want], *, shared: bool, direct: bool) -> Buffer:
        name, offset, length = wants[0]
        deadline = time.monotonic() + _PULL + length / _SLOWEST
        if shared and self._host is not None:
            fetch = self._client.fetch_to_host
            whole = fetch(address, name, None, self._host, deadline, direct=direct, wanted=length)
            return whole[offset : offset + length]
        return self._pull_ahead(address, wants, deadline, direct=direct)

    def _pull_ahead(self, address: str, wants: list[_Want], deadline: float, *, direct: bool) -> Buffer:
        views = list(self._client.pull(address, wants, deadline, direct=direct))
        with self._lock:
            rest = zip(wants[1:], views[1:], strict=True)
            self._ahead |= {want: view for want, view in rest if view is not None}
        if views[0] is None:
            raise MissingError(f"{address} does not have block {wants[0][0]}")
        return views[0]


def _out_of_reach(host: str, name: str, why: str) -> MissingError:
    return MissingError(f"block {name} is on host {host}, which is out of reach: {why}")
