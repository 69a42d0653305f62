"""The detached driver: one process for each home and Python environment. It interprets runs and dispatches tasks.

It holds `alive.lock` in its folder as long as it lives (`driver_lease`). This module starts and ends it.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import platform
import subprocess
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec import Struct

from treadle.primitives.errors import TreadleError, UsageError

from ..environment.home import Home
from ..environment.task_environment import differing, marks
from .detached_process import POLL, end_process, has_open, is_held, locked, log_size, log_tail, read_state, spawn
from .python_environments import (
    FIRST,
    PythonEnvironment,
    folder_of,
    installed,
    known_environments,
    name_of,
    register,
    this_environment,
)

if TYPE_CHECKING:
    from ..environment.profile import Profile

DRIVER_MODULE = "treadle.orchestrator.temporal.driver"
START_TIMEOUT = 30.0
END_GRACE = 15.0
"""Seconds for a driver to hand back its tasks before it is killed. Committed partitions are safe either way."""
_LOCK_TIMEOUT = 90.0
_BIRTH = 5.0


class DriverFailed(TreadleError):
    """The driver did not start. The message ends with its output."""


class OtherProfile(UsageError):
    """The live driver serves another profile than the command's."""


class DriverState(Struct, frozen=True):
    """A driver's description of itself."""

    pid: int
    started: float
    """Seconds since the epoch."""
    version: str
    fingerprint: str
    """The fingerprint of treadle's code and the installed distributions. A driver with another fingerprint is
    replaced."""
    settings: str
    """The profile that it serves, as JSON (see `profile_settings`)."""
    ready: bool
    variables: dict[str, str] = {}
    """Marks of the variables from the command that started it (see `task_environment.marks`)."""
    address: str = ""
    """Where it answers requests about runs (`run_requests`), once it is ready."""


class DriverFiles:
    """The files of the driver of one environment."""

    def __init__(self, home: Home, name: str | None = None) -> None:
        """`name`: the environment's name (`python_environments.name_of`). None: the environment of this process."""
        folder = self.folder = folder_of(home, name_of(home) if name is None else name)
        self.log, self.state = folder / "driver.log", folder / "state.json"
        self.alive, self.start = folder / "alive.lock", folder / "start.lock"


def driver_alive(home: Home, name: str | None = None) -> bool:
    """Returns whether a driver of the environment lives, ready or not. `name`: as in DriverFiles."""
    return is_held(DriverFiles(home, name).alive)


def any_driver_alive(home: Home, but: str | None = None) -> bool:
    """Returns whether a driver of any environment lives, other than the environment called `but`."""
    names = {FIRST, *(name for name, _ in known_environments(home))} - {but}
    return any(driver_alive(home, name) for name in names)


def living_drivers(home: Home) -> list[tuple[PythonEnvironment, DriverState]]:
    """The live drivers of all environments."""
    found = ((one, running_driver(home, name)) for name, one in known_environments(home))
    return [(environment, state) for environment, state in found if state is not None]


def running_driver(home: Home, name: str | None = None) -> DriverState | None:
    """The live driver's state. None: no driver, or its state is not written yet."""
    return _state(DriverFiles(home, name))


def answering_driver(home: Home) -> str:
    """The address at which the driver of this process's environment answers requests about runs.

    Empty without a ready driver of the same code and distributions.
    """
    state = running_driver(home)
    return state.address if state and state.ready and _has_our_code(state) else ""


def ensure_driver(
    home: Home,
    profile: Profile | None = None,
    *,
    module: str = DRIVER_MODULE,
    timeout: float = START_TIMEOUT,
    environment: PythonEnvironment | None = None,
) -> DriverState:
    """The ready driver of an environment, started if there is none. `environment`: None for the environment of this
    process.

    A driver with another fingerprint of treadle's code and the installed distributions is replaced. This is checked for
    the environment of this process only. With `profile` the driver must serve that profile; without, it may serve any.

    Raises OtherProfile when the live driver serves another profile. Raises DriverFailed when it dies at start, or is
    not ready after `timeout` seconds.
    """
    files = DriverFiles(home, register(home, environment))
    foreign = environment is not None and environment.digest != this_environment().digest
    starting = _Starting(home, files, environment or this_environment(), foreign=foreign)
    state = starting.running()
    if not (state and state.ready and starting.is_current(state)):
        state = starting.once(profile, module, timeout)
    if profile is not None:
        _check_same(state, profile_settings(profile), marks(home))
    return state


def end_driver(home: Home, name: str | None = None) -> bool:
    """End the driver and wait for it; it is killed after END_GRACE. Returns whether there was a driver."""
    files = DriverFiles(home, name)
    if not files.folder.is_dir():
        return False
    with locked(files.start, _LOCK_TIMEOUT):
        state = _born_state(files)
        return end_process(state.pid if state else None, files.alive, END_GRACE)


def end_drivers(home: Home) -> bool:
    """End the drivers of all environments. Returns whether there was a driver."""
    names = {FIRST, *(name for name, _ in known_environments(home))}
    ended = [end_driver(home, name) for name in sorted(names)]
    return any(ended)


def code_fingerprint() -> str:
    """A digest that changes with treadle's code, the Python version and the installed distributions."""
    return hashlib.sha256(f"{platform.python_version()} {installed()} {own_code()}".encode()).hexdigest()[:16]


@functools.cache
def own_code() -> str:
    """A digest of treadle's code, as it was when this process first asked. Takes 2 to 3 ms."""
    import treadle

    digest = hashlib.sha256()
    for folder in sorted(set(treadle.__path__)):
        for line in _sources(folder):
            digest.update(line.encode(errors="surrogateescape"))
    return digest.hexdigest()


def _has_our_code(state: DriverState) -> bool:
    """Whether a driver has the fingerprint of this process. If not, the code is read again: the driver may be newer."""
    if state.fingerprint == code_fingerprint():
        return True
    own_code.cache_clear()
    return state.fingerprint == code_fingerprint()


def _sources(folder: str) -> Iterator[str]:
    """Path, size and time of change of each Python file below the folder."""
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda one: one.name):
            if entry.name.endswith(".py"):
                status = entry.stat()
                yield f"{entry.path} {status.st_size} {status.st_mtime_ns}\n"
            elif entry.name != "__pycache__" and entry.is_dir():
                yield from _sources(entry.path)


def profile_settings(profile: Profile) -> str:
    """The profile's settings as JSON, without its name and without defaults. Drivers are compared by them."""
    return profile.model_dump_json(exclude={"name"}, exclude_defaults=True)


def own_state(
    *,
    started: float,
    fingerprint: str,
    settings: str,
    ready: bool,
    variables: dict[str, str] | None = None,
    address: str = "",
) -> DriverState:
    """The state of this process, a driver."""
    from importlib.metadata import version  # late: all commands import this module

    number = version("treadle-orchestrator")
    return DriverState(os.getpid(), started, number, fingerprint, settings, ready, variables or {}, address)


def _state(files: DriverFiles) -> DriverState | None:
    if not is_held(files.alive):
        return None
    state = read_state(files.state, DriverState)
    return state if state and has_open(state.pid, files.alive) else None


def _born_state(files: DriverFiles) -> DriverState | None:
    """The live driver's state. A driver that has just taken the lock writes it within moments."""
    deadline = time.monotonic() + _BIRTH
    while (state := _state(files)) is None and is_held(files.alive) and time.monotonic() < deadline:
        time.sleep(POLL)
    return state


class _Starting:
    """The start of the driver of one environment."""

    def __init__(self, home: Home, files: DriverFiles, environment: PythonEnvironment, *, foreign: bool) -> None:
        """`foreign`: the environment is not that of this process, so the code of its driver is not compared."""
        self._home, self._files, self._environment, self._foreign = home, files, environment, foreign

    def running(self) -> DriverState | None:
        return _state(self._files)

    def is_current(self, state: DriverState) -> bool:
        return self._foreign or _has_our_code(state)

    def once(self, profile: Profile | None, module: str, timeout: float) -> DriverState:
        with locked(self._files.start, _LOCK_TIMEOUT):
            if (state := _born_state(self._files)) and not self.is_current(state):
                end_process(state.pid, self._files.alive, END_GRACE)
            begin = log_size(self._files.log)
            process = None if is_held(self._files.alive) else self._spawn(profile, module)
            return self._await_ready(process, begin, timeout)

    def _spawn(self, profile: Profile | None, module: str) -> subprocess.Popen[bytes]:
        # -P: the working directory must not shadow modules.
        command = [self._environment.executable, "-P", "-m", module, "--embedded", "--home", str(self._home.path)]
        environ = dict(os.environ)
        environ.pop("PYTHONPATH", None)
        if self._environment.path:
            environ["PYTHONPATH"] = os.pathsep.join(self._environment.path)
        if profile is not None:
            environ |= {"TREADLE_PROFILE": profile.name or "", "TREADLE_STORE": profile.store or ""}
        return spawn(command, folder=self._files.folder, log=self._files.log, environ=environ, umask=-1)

    def _await_ready(self, process: subprocess.Popen[bytes] | None, begin: int, timeout: float) -> DriverState:
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            if (state := self.running()) and state.ready:
                return state
            ended = process is None or process.poll() is not None
            # The process has ended but the lock is held: it made way for a driver that was started by hand at the same
            # time.
            if ended and not is_held(self._files.alive):
                code = "" if process is None else f" with exit code {process.returncode}"
                raise _failure(self._files, f"ended at start{code}", begin)
            time.sleep(POLL)
        raise _failure(self._files, f"was not ready within {timeout:g} s", begin)


def _check_same(state: DriverState, settings: str, variables: dict[str, str]) -> None:
    """Raises OtherProfile when the driver's settings or variables differ from the command's."""
    if differ := differing(json.loads(state.settings), json.loads(settings)):
        text = f"another profile, which differs in {', '.join(differ)}"
    elif differ := differing(state.variables, variables):
        text = f"other values of environment variables: {', '.join(differ)}"
    else:
        return
    raise OtherProfile(
        f"the driver of this environment is busy with {text}",
        "`treadle dev down` ends it (its runs go on with the next one); or give this command its own TREADLE_HOME.",
    )


def _failure(files: DriverFiles, what: str, begin: int) -> DriverFailed:
    tail = log_tail(files.log, begin)
    return DriverFailed(f"the driver {what}", f"Its log {files.log} ends with:\n{tail or '(nothing)'}")
