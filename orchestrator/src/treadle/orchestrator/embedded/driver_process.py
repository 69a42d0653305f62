"""The detached driver: one process for each home and Python environment that interprets runs and dispatches tasks.

It holds `alive.lock` in its folder for its life (`driver_lease`); this module starts it and ends it.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import time
from importlib.metadata import version
from pathlib import Path

from msgspec import Struct

from treadle.primitives.errors import TreadleError, UsageError

from ..environment.home import Home
from ..environment.profile import Profile
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

DRIVER_MODULE = "treadle.orchestrator.temporal.driver"
START_TIMEOUT = 30.0
END_GRACE = 15.0
"""Seconds a driver has to hand back its tasks before it is killed; what is committed is safe either way."""
_LOCK_TIMEOUT = 90.0
_BIRTH = 5.0


class DriverFailed(TreadleError):
    """The driver did not come up; the message ends with what it wrote."""


class OtherProfile(UsageError):
    """The living driver serves another profile than this command asks for."""


class DriverState(Struct, frozen=True):
    """What a driver says of itself."""

    pid: int
    started: float
    """Seconds since the epoch."""
    version: str
    fingerprint: str
    """Of treadle's code and the distributions in it: a driver of others is replaced."""
    settings: str
    """The profile it serves, as JSON: see `profile_settings`."""
    ready: bool
    variables: dict[str, str] = {}
    """Marks of the variables that it has from the command that started it: see `variables.marks`."""


class DriverFiles:
    """Where the driver of an environment keeps what."""

    def __init__(self, home: Home, name: str | None = None) -> None:
        """`name`: of the environment (`environments.name_of`); None: that of this process."""
        folder = self.folder = folder_of(home, name_of(home) if name is None else name)
        self.log, self.state = folder / "driver.log", folder / "state.json"
        self.alive, self.start = folder / "alive.lock", folder / "start.lock"


def driver_alive(home: Home, name: str | None = None) -> bool:
    """Whether a driver of the environment lives, ready or not; `name` as of DriverFiles."""
    return is_held(DriverFiles(home, name).alive)


def any_driver_alive(home: Home, but: str | None = None) -> bool:
    """Whether a driver of any environment lives, that of the name `but` left out."""
    names = {FIRST, *(name for name, _ in known_environments(home))} - {but}
    return any(driver_alive(home, name) for name in names)


def living_drivers(home: Home) -> list[tuple[PythonEnvironment, DriverState]]:
    """The drivers of all environments that live."""
    found = ((one, running_driver(home, name)) for name, one in known_environments(home))
    return [(environment, state) for environment, state in found if state is not None]


def running_driver(home: Home, name: str | None = None) -> DriverState | None:
    """What the living driver says of itself; None without one, and for the moment in which it is being born."""
    return _state(DriverFiles(home, name))


def ensure_driver(
    home: Home,
    profile: Profile | None = None,
    *,
    module: str = DRIVER_MODULE,
    timeout: float = START_TIMEOUT,
    environment: PythonEnvironment | None = None,
) -> DriverState:
    """The ready driver of an environment, started when there is none. `environment`: None for that of this process.

    A driver that runs other code of treadle, or has other distributions than are installed now, is replaced; this is
    known only of the environment of this process. With `profile` the driver serves that one; without, whichever it
    serves. Raises OtherProfile when the living driver serves another one, DriverFailed when it dies at start or is not
    ready after `timeout` seconds.
    """
    files = DriverFiles(home, register(home, environment))
    foreign = environment is not None and environment.digest != this_environment().digest
    starting = _Starting(home, files, environment or this_environment(), None if foreign else code_fingerprint())
    state = starting.running()
    if not (state and state.ready and starting.is_current(state)):
        state = starting.once(profile, module, timeout)
    if profile is not None:
        _check_same(state, profile_settings(profile), marks(home))
    return state


def end_driver(home: Home, name: str | None = None) -> bool:
    """Ask the driver to end and wait for it, killing it after END_GRACE; whether there was one."""
    files = DriverFiles(home, name)
    if not files.folder.is_dir():
        return False
    with locked(files.start, _LOCK_TIMEOUT):
        state = _born_state(files)
        return end_process(state.pid if state else None, files.alive, END_GRACE)


def end_drivers(home: Home) -> bool:
    """End the drivers of all environments; whether there was one."""
    names = {FIRST, *(name for name, _ in known_environments(home))}
    ended = [end_driver(home, name) for name in sorted(names)]
    return any(ended)


def code_fingerprint() -> str:
    """Changes with treadle's code, the Python that runs it and the installed distributions; about 2 ms."""
    import treadle

    digest = hashlib.sha256(f"{platform.python_version()} {installed()}".encode())
    for folder in sorted(set(treadle.__path__)):
        for path in sorted(Path(folder).rglob("*.py")):
            status = path.stat()
            digest.update(f"{path} {status.st_size} {status.st_mtime_ns}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()[:16]


def profile_settings(profile: Profile) -> str:
    """What matters to a driver: everything but the name, as far as it is no default."""
    return profile.model_dump_json(exclude={"name"}, exclude_defaults=True)


def own_state(
    *, started: float, fingerprint: str, settings: str, ready: bool, variables: dict[str, str] | None = None
) -> DriverState:
    """What this process, a driver, says of itself."""
    number = version("treadle-orchestrator")
    return DriverState(os.getpid(), started, number, fingerprint, settings, ready, variables or {})


def _state(files: DriverFiles) -> DriverState | None:
    if not is_held(files.alive):
        return None
    state = read_state(files.state, DriverState)
    return state if state and has_open(state.pid, files.alive) else None


def _born_state(files: DriverFiles) -> DriverState | None:
    """The living driver's state; one that has the lock writes it within moments."""
    deadline = time.monotonic() + _BIRTH
    while (state := _state(files)) is None and is_held(files.alive) and time.monotonic() < deadline:
        time.sleep(POLL)
    return state


class _Starting:
    """The start of the driver of one environment."""

    def __init__(self, home: Home, files: DriverFiles, environment: PythonEnvironment, fingerprint: str | None) -> None:
        """`fingerprint`: what the driver must have; None: any is taken."""
        self._home, self._files, self._environment, self._fingerprint = home, files, environment, fingerprint

    def running(self) -> DriverState | None:
        return _state(self._files)

    def is_current(self, state: DriverState) -> bool:
        return self._fingerprint in (None, state.fingerprint)

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
        return spawn(command, folder=self._files.folder, log=self._files.log, environ=environ)

    def _await_ready(self, process: subprocess.Popen[bytes] | None, begin: int, timeout: float) -> DriverState:
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            if (state := self.running()) and state.ready:
                return state
            ended = process is None or process.poll() is not None
            # Ended, but the lock held: it made way for one that was started by hand at the same time.
            if ended and not is_held(self._files.alive):
                code = "" if process is None else f" with exit code {process.returncode}"
                raise _failure(self._files, f"ended at start{code}", begin)
            time.sleep(POLL)
        raise _failure(self._files, f"was not ready within {timeout:g} s", begin)


def _check_same(state: DriverState, settings: str, variables: dict[str, str]) -> None:
    """Raises OtherProfile when the driver has other settings or variables than a command."""
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
