"""Pulls blocks of a run from the servers of other hosts; the reader sets the pace."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ..errors import CorruptError, MissingError
from ..run_paths import run_folder
from ..stores.atomic_files import check_name
from ..stores.shared_memory import HostFolder
from ..stores.store_errors import border
from ..wire import NotAuthentic, TimedOut, WireError
from . import range_prefetch
from .connection_pool import ConnectionPool, FailedAddress
from .host_cache import one_puller, save
from .host_directory import behind
from .messages import GONE, Pull, Want


class PeerClient:
    """Client for one run. Thread-safe: connections are reused, each by one thread at a time.

    A stale connection, or one that breaks after some answers, is replaced; a new connection that breaks without an
    answer is an error. A server that does not answer is not dialled again for a while (`failures`). Checksums are the
    caller's to compare.

    An address is that of a server, or `tcp://host:port/member` for a member that this process cannot dial, through the
    gateway at that port.
    """

    def __init__(self, run: str, key: bytes, read: Counter[str] | None = None) -> None:
        """`read` counts the received bytes by their way (see `HostPeers`)."""
        self.run = run
        self._read, self._counting = Counter[str]() if read is None else read, threading.Lock()
        self._pool = ConnectionPool(run, key)

    @property
    def failures(self) -> Mapping[str, FailedAddress]:
        """Addresses whose last use failed."""
        return self._pool.failures

    def fetch(self, address: str, wants: Sequence[tuple[str, int, int]], deadline: float) -> list[memoryview]:
        """Return the bytes of ranges (name, offset, length) of blocks, read-only, in order; fewer bytes where a block
        ends.

        A long range has a buffer of its own; short ones may share one. Raises MissingError (with the name in `block`)
        when the host does not have a block, WireError when the host is not reached by the deadline or the connection
        breaks, and NotAuthentic.
        """
        found: list[memoryview] = []
        missing = ""
        for want, view in zip(wants, self.pull(address, wants, deadline), strict=True):
            if view is None:
                missing = missing or want[0]
            else:
                found.append(view)
        if missing:
            raise _gone(address, missing)
        return found

    def pull(
        self, address: str, wants: Sequence[tuple[str, int, int]], deadline: float, *, direct: bool = False
    ) -> Iterator[memoryview | None]:
        """Yield the same ranges one by one, None for a missing block; at most `WINDOW` bytes are ahead of the reader.

        `direct`: use a gateway's path, and raise when it has none.
        """
        pending = [Want(check_name(name), offset, length) for name, offset, length in wants]
        done = 0
        while done < len(pending):
            connection, fresh = self._pool.take(address, deadline)
            before, began = done, time.monotonic()
            try:
                member = behind(address)
                for view in range_prefetch.pull(
                    connection, pending[done:], deadline, self._count, member, direct=direct
                ):
                    done += 1
                    if done == len(pending):
                        self._pool.give(address, connection)
                    yield view
            except range_prefetch.Unreached:
                raise
            except WireError as error:
                connection.close()
                self._give_up(address, error, fresh and done == before, began)
            except BaseException:
                if done < len(pending):
                    connection.close()
                raise

    def fetch_to_host(
        self,
        address: str,
        name: str,
        size: int | None,
        host: HostFolder,
        deadline: float,
        *,
        direct: bool = False,
        wanted: int = 0,
    ) -> memoryview:
        """Return a whole block, mapped from this host's folder, where the first process that needs it puts it.

        Other processes wait for the first. When shared memory is full, each gets the bytes in private memory. `direct`:
        as for `pull`. `wanted`: number of bytes to count as read from this host when the block is already here. Raises
        the errors of `fetch`, CorruptError when the block has another size than `size`, and StoreError.
        """
        own = f"{run_folder(self.run)}/{check_name(name)}"
        with border(host.url, own):
            view = _mapped(host, own)
            if view is None:
                path = host.path(own)
                with one_puller(path, deadline):
                    view = _mapped(host, own)
                    if view is None:
                        request = Pull((Want(name, 0, -1),), behind(address), direct)
                        view, wanted = self._pull_whole(address, request, path, deadline), 0
            view = host.map(own) if view is None else view
        self._count({"host": wanted})
        if size is not None and len(view) != size:
            error = CorruptError(f"block {name} has {len(view):,} bytes at {address}, not {size:,}")
            error.block = name
            raise error
        return view

    def close(self) -> None:
        """Close idle connections; a connection in use is closed by the thread that uses it."""
        self._pool.close()

    def _count(self, came: Mapping[str, int]) -> None:
        with self._counting:
            for over, size in came.items():
                if size:
                    self._read[over] += size

    def _pull_whole(self, address: str, request: Pull, path: Path, deadline: float) -> memoryview | None:
        """Pull a block to `path` and return None, or return its bytes when shared memory is full. Replaces a stale
        connection.
        """
        while True:
            connection, fresh = self._pool.take(address, deadline)
            began = time.monotonic()
            try:
                connection.send(request, deadline=deadline)
                (got,), length = range_prefetch.expect(connection, request.wants, deadline)
                private = save(connection, length, path, deadline) if got != GONE else None
                self._count(range_prefetch.came(connection, length, deadline, request.member))
            except range_prefetch.Unreached:
                raise
            except WireError as error:
                connection.close()
                self._give_up(address, error, fresh, began)
            except BaseException:
                connection.close()
                raise
            else:
                self._pool.give(address, connection)
                if got == GONE:
                    raise _gone(address, request.wants[0].name)
                return private

    def _give_up(self, address: str, error: WireError | NotAuthentic, hopeless: bool, began: float) -> None:
        """Raise the error if another connection would not help."""
        if hopeless or isinstance(error, TimedOut):
            self._pool.failed(address, error, began)
            raise error


def _mapped(host: HostFolder, name: str) -> memoryview | None:
    try:
        return host.map(name)
    except MissingError:
        return None


def _gone(address: str, name: str) -> MissingError:
    error = MissingError(f"{address} does not have block {name}", "Its producer must run again.")
    error.block = name
    return error
