"""The embedded default: one Temporal server for each home, and one driver for each Python environment that uses it.

They start when needed and end when idle. General layout: `process` (locks, detached start, logs), `environments` (which
environments use a home), `server` and `driver` (start, find, end), `lease` (inside the
driver process). All of it is synchronous; from an event loop, call it by `asyncio.to_thread`.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from msgspec import Struct

from ..environment.home import Home
from ..environment.profile import Profile
from .detached_process import wait_lock
from .driver_process import (
    DRIVER_MODULE,
    DriverFailed,
    DriverState,
    OtherProfile,
    end_driver,
    end_drivers,
    ensure_driver,
    living_drivers,
    running_driver,
)
from .python_environments import PythonEnvironment
from .server import ServerState, end_server, ensure_server, running_server

_ATTACH_TIMEOUT = 60.0
_attached: dict[Path, int] = {}


class Status(Struct, frozen=True):
    """What lives; None for what does not (or is not ready)."""

    server: ServerState | None
    driver: DriverState | None
    """Of this process's environment, or of the one that was asked for."""


class Ended(Struct, frozen=True):
    """What `down` found alive and ended."""

    server: bool
    driver: bool


def up(
    home: Home,
    profile: Profile | None = None,
    *,
    ui: bool = False,
    module: str = DRIVER_MODULE,
    environment: PythonEnvironment | None = None,
) -> Status:
    """Server and driver, started when needed and kept from ending as idle while this process lives (or `release`s).

    `environment`: whose driver; None: that of this process.

    Raises Unreachable, DriverFailed, and OtherProfile when the living driver serves another one.
    """
    attach(home)
    if ui:
        ensure_server(home, ui=True)
    # The driver spends its first second on imports; meanwhile the server starts.
    with ThreadPoolExecutor(1) as pool:
        server = pool.submit(ensure_server, home)
        try:
            driver = ensure_driver(home, profile, module=module, environment=environment)
        except DriverFailed:
            server.result()  # its failure is the cause of the driver's
            raise
        return Status(server.result(), driver)


def down(home: Home) -> Ended:
    """End every driver, then the server, each by its process id, and wait for them. Runs go on at the next `up`."""
    release(home)
    driver = end_drivers(home)
    return Ended(end_server(home), driver)


def status(home: Home) -> Status:
    """What lives; starts nothing."""
    return Status(running_server(home), running_driver(home))


def attach(home: Home) -> None:
    """Be a client until this process ends: a driver that is just ending as idle is waited for, then none ends so."""
    if home.path not in _attached:
        _attached[home.path] = wait_lock(home.clients, _ATTACH_TIMEOUT, shared=True)


def release(home: Home) -> None:
    """Be a client no more."""
    if (descriptor := _attached.pop(home.path, None)) is not None:
        os.close(descriptor)


__all__ = [
    "DRIVER_MODULE",
    "DriverFailed",
    "DriverState",
    "Ended",
    "OtherProfile",
    "PythonEnvironment",
    "ServerState",
    "Status",
    "attach",
    "down",
    "end_driver",
    "end_drivers",
    "end_server",
    "ensure_driver",
    "ensure_server",
    "living_drivers",
    "release",
    "running_driver",
    "running_server",
    "status",
    "up",
]
