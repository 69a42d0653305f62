"""The driver process's lock, its state, and its decision to end.

lease = DriverLease.take(home)
if lease is None:
    return  # another driver serves this home
with lease:
    ...  # start the worker
    lease.ready()
    await lease.until_end(idle_seconds)
    ...  # hand back the tasks
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import time
from collections.abc import Callable, Mapping
from typing import Literal, Self

from treadle.dsl.units import parse_duration
from treadle.primitives.errors import TreadleError, UsageError

from ..environment.home import Home
from ..environment.profile import load_profile
from ..environment.task_environment import marks
from .detached_process import bound_log, try_lock, wait_lock, write_state
from .driver_process import DriverFiles, any_driver_alive, code_fingerprint, own_state, profile_settings
from .python_environments import register
from .server import end_server, ensure_server, server_alive, server_log

IDLE_DEFAULT = 600.0
"""Seconds without work after which driver and server end. `TREADLE_IDLE` (such as `30s`) changes it."""
_TAKE_TIMEOUT = 0.5
"""Seconds. A process that only checks the lock holds it for microseconds."""
_log = logging.getLogger(__name__)

End = Literal["idle", "signal"]


def idle_limit(environ: Mapping[str, str] = os.environ) -> float:
    """Seconds of idleness after which the driver ends. Raises UsageError for a malformed `TREADLE_IDLE`."""
    text = environ.get("TREADLE_IDLE")
    try:
        return parse_duration(text) if text else IDLE_DEFAULT
    except ValueError as error:
        raise UsageError(f"TREADLE_IDLE: {error}", "Write for example TREADLE_IDLE=10m.") from None


class DriverLease:
    """The right to be the driver of this process's environment in a home."""

    name: str
    """The name of the environment."""

    def __init__(self, home: Home, name: str, lock: int) -> None:
        """Use `take`."""
        self._home, self.name = home, name
        self._files = DriverFiles(home, name)
        self._lock: int | None = lock
        self._clients: int | None = None
        self._asked = asyncio.Event()
        self._started = time.time()
        self._fingerprint = code_fingerprint()
        # The starter's variables are set here, so `load_profile` returns the starter's profile everywhere in this
        # process.
        self._settings = profile_settings(load_profile(home))
        self._variables = marks(home)
        self._write(ready=False)
        # A forked child must not keep the lock after this process has died.
        os.register_at_fork(after_in_child=self._close)

    @classmethod
    def take(cls, home: Home) -> Self | None:
        """The lease. None: another process has it, and this one should end quietly."""
        name = register(home)
        try:
            lock = wait_lock(DriverFiles(home, name).alive, _TAKE_TIMEOUT)
        except TreadleError:
            return None
        return cls(home, name, lock)

    def ready(self, address: str = "") -> None:
        """Publish that the driver serves runs, and answers requests about them at `address`. From now on a signal ends
        it in order. Needs a running loop."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._asked.set)
        self._write(ready=True, address=address)

    async def until_end(
        self, idle_seconds: Callable[[], float], *, limit: float | None = None, interval: float = 1.0
    ) -> End:
        """After `ready`: wait for SIGTERM or SIGINT, or until `idle_seconds()` reaches `limit` (default:
        `idle_limit()`).

        The driver is not idle while a client of the embedded default lives. Every `interval` seconds it checks that the
        server lives, restarts it if not, and bounds the logs.
        """
        limit = idle_limit() if limit is None else limit
        while not self._asked.is_set():
            if idle_seconds() >= limit and self._no_clients():
                return "idle"
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(interval):
                    await self._asked.wait()
                break
            await self._care()
        return "signal"

    def close(self) -> None:
        """Release the lock. After an idle end, first end the server too, unless another driver lives.

        Clients wait until it is done.
        """
        try:
            if self._clients is not None and not any_driver_alive(self._home, but=self.name):
                end_server(self._home)
        finally:
            self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _no_clients(self) -> bool:
        """Returns whether no client lives. If so, new clients wait from now on until this process has ended."""
        self._clients = try_lock(self._home.clients)
        return self._clients is not None

    async def _care(self) -> None:
        for log in (self._files.log, server_log(self._home)):
            bound_log(log)
        if server_alive(self._home):
            return
        try:
            server = await asyncio.to_thread(ensure_server, self._home)
            _log.warning("the embedded server was gone; started it again at %s", server.address)
        except (TreadleError, OSError) as error:  # for example a full disk; the next look may succeed
            _log.error("%s", error)

    def _write(self, *, ready: bool, address: str = "") -> None:
        state = own_state(
            started=self._started,
            fingerprint=self._fingerprint,
            settings=self._settings,
            ready=ready,
            variables=self._variables,
            address=address,
        )
        write_state(self._files.state, state)

    def _close(self) -> None:
        for descriptor in (self._lock, self._clients):
            if descriptor is not None:
                os.close(descriptor)
        self._lock = self._clients = None
