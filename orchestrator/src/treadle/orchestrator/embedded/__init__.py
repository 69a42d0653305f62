"""The embedded default: one Temporal server for each home, and one driver for each Python environment that uses it.

They start when needed and end when idle. All functions are synchronous; from an event loop, call them by
`asyncio.to_thread`.

detached_process     locks, detached start, logs
python_environments  the environments that use a home
server, driver_process
                     start, find and end the server and the drivers
server_program       the `temporal` program
driver_lease         the lock and the end of a driver, inside its process
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from ..environment.home import Home
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

if TYPE_CHECKING:
    from ..environment.profile import Profile

_ATTACH_TIMEOUT = 60.0
_attached: dict[Path, int] = {}


class EmbeddedStatus(Struct, frozen=True):
    """The live server and driver of a home. None: not alive, or not ready."""

    server: ServerState | None
    driver: DriverState | None
    """The driver of this process's environment, or of the requested one."""


class Ended(Struct, frozen=True):
    """The processes that `down` ended."""

    server: bool
    driver: bool


def up(
    home: Home,
    profile: Profile | None = None,
    *,
    ui: bool = False,
    module: str = DRIVER_MODULE,
    environment: PythonEnvironment | None = None,
) -> EmbeddedStatus:
    """The server and driver, started when needed. Neither ends as idle while this process lives, unless it calls
    `release`.

    `environment`: the environment of the driver. None: the environment of this process.

    Raises Unreachable, DriverFailed, and OtherProfile when the live driver serves another profile.
    """
    attach(home)
    if ui:
        ensure_server(home, ui=True)
    # The driver spends its first second on imports. The server starts in the meantime.
    with ThreadPoolExecutor(1) as pool:
        server = pool.submit(ensure_server, home)
        try:
            driver = ensure_driver(home, profile, module=module, environment=environment)
        except DriverFailed:
            server.result()  # its failure is the cause of the driver's
            raise
        return EmbeddedStatus(server.result(), driver)


def down(home: Home) -> Ended:
    """End every driver, then the server, each by its process id, and wait for them. Runs continue at the next `up`."""
    release(home)
    driver = end_drivers(home)
    return Ended(end_server(home), driver)


def status(home: Home) -> EmbeddedStatus:
    """The live server and driver. Starts nothing."""
    return EmbeddedStatus(running_server(home), running_driver(home))


def attach(home: Home) -> None:
    """Register as a client until this process ends. Waits for a driver that is ending as idle; later drivers stay."""
    if home.path not in _attached:
        _attached[home.path] = wait_lock(home.clients, _ATTACH_TIMEOUT, shared=True)


def release(home: Home) -> None:
    """Stop being a client."""
    if (descriptor := _attached.pop(home.path, None)) is not None:
        os.close(descriptor)


__all__ = [
    "DRIVER_MODULE",
    "DriverFailed",
    "DriverState",
    "EmbeddedStatus",
    "Ended",
    "OtherProfile",
    "PythonEnvironment",
    "ServerState",
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
