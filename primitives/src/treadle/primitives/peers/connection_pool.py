"""Reusable connections to block servers, and a short memory of servers that failed."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from typing import NamedTuple

from ..errors import TreadleError
from ..wire import Connection, NotAuthentic, WireError, connect

CONNECT_SECONDS = 5.0
_IDLE = 4
"""Idle connections kept for each address."""
_SHORTEST, _LONGEST = 1.0, 30.0


class FailedAddress(NamedTuple):
    """An address that failed. It is not dialled again for twice the time that the failure took, at least 1 s and at
    most 30 s.
    """

    until: float
    """A time of `time.monotonic()`."""
    error: TreadleError


class ConnectionPool:
    """A pool of connections. Thread-safe; a connection taken belongs to the caller until it is given back."""

    def __init__(self, run: str, key: bytes) -> None:
        self._run, self._key = run, key
        self._lock = threading.Lock()
        self._idle: defaultdict[str, list[Connection]] = defaultdict(list)
        self._closed = False
        self.failures: dict[str, FailedAddress] = {}

    def take(self, address: str, deadline: float) -> tuple[Connection, bool]:
        """Return a connection, and whether it is new. Raises UsageError, WireError, NotAuthentic."""
        while (connection := self._pop(address)) is not None:
            if not connection.stale:
                return connection, False
            connection.close()
        self._refuse_failing(address)
        began = time.monotonic()
        try:
            until = min(deadline, began + CONNECT_SECONDS)
            return connect(address, self._run, self._key, deadline=until), True
        except (WireError, NotAuthentic) as error:
            self.failed(address, error, began)
            raise

    def give(self, address: str, connection: Connection) -> None:
        """Give a connection back, with no request under way."""
        with self._lock:
            self.failures.pop(address, None)
            if not self._closed and len(self._idle[address]) < _IDLE:
                self._idle[address].append(connection)
                return
        connection.close()

    def failed(self, address: str, error: TreadleError, began: float) -> None:
        """Remember the failure of an address, and close its idle connections."""
        now = time.monotonic()
        with self._lock:
            pause = min(max(2 * (now - began), _SHORTEST), _LONGEST)
            self.failures[address] = FailedAddress(now + pause, error)
            dropped = self._idle.pop(address, [])
        for connection in dropped:
            connection.close()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            dropped = [connection for idle in self._idle.values() for connection in idle]
            self._idle.clear()
        for connection in dropped:
            connection.close()

    def _pop(self, address: str) -> Connection | None:
        with self._lock:
            idle = self._idle.get(address)
            return idle.pop() if idle else None

    def _refuse_failing(self, address: str) -> None:
        failure = self.failures.get(address)
        if failure is not None and failure.until > time.monotonic():
            message = failure.error.message
            raise WireError(f"{address} failed a moment ago: {message}", "Another try is made soon.") from failure.error
