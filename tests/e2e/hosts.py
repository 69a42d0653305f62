"""Several hosts on one machine: drivers with separate homes that share the resources of real hosts, but no memory."""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from e2e.project import TREADLE, Project
from eventually import eventually

from treadle.orchestrator.embedded import ServerState, attach, ensure_server
from treadle.orchestrator.environment.home import Home
from treadle.primitives.sealing import load_or_create_key


class Hosts:
    """A client's project, and drivers by name. All share `server` and the project's store and key."""

    def __init__(self, here: Project, server: ServerState, worker: Sequence[str]) -> None:
        self.here, self.server = here, server
        self._worker = worker
        self._drivers: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str) -> None:
        """Start a driver. Returns when it serves."""
        home = Home(self.here.root / name)
        shutil.copy(self.here.home.key, home.key)
        environ = {**self.here.environ, "TREADLE_HOME": str(home.path)}
        told = self.here.root / f"{name}.log"
        with told.open("wb") as log:  # a pipe would fill up before it is read
            self._drivers[name] = subprocess.Popen(self._worker, env=environ, stderr=log)
        eventually(lambda: "serving the queue" in told.read_text("utf-8"))

    def kill(self, name: str) -> None:
        """Kill the driver, and remove its memory."""
        driver = self._drivers.pop(name)
        driver.send_signal(signal.SIGKILL)
        driver.wait()
        shutil.rmtree(Home(self.here.root / name).host_root, ignore_errors=True)

    def end(self) -> None:
        for driver in self._drivers.values():
            driver.terminate()
        for driver in self._drivers.values():
            driver.wait(timeout=90)


@contextmanager
def hosts(here: Project, worker: Sequence[str] = (TREADLE, "worker")) -> Iterator[Hosts]:
    """`worker`: the command of a driver. All drivers end with the context."""
    load_or_create_key(here.home.key)
    attach(here.home)
    server = ensure_server(here.home)
    here.environ |= {
        "TEMPORAL_ADDRESS": server.address,
        "TEMPORAL_NAMESPACE": server.namespace,
        "TREADLE_STORE": here.home.store.as_uri(),
    }
    made = Hosts(here, server, worker)
    try:
        yield made
    finally:
        made.end()
