"""The detached driver: one process for each home that interprets runs and dispatches tasks.

It holds `driver/alive.lock` for its life (`treadle.orchestrator.embedded.lease`); this module starts and ends it.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

from msgspec import Struct

from treadle.primitives.errors import TreadleError, UsageError

from ..environment.home import Home
from ..environment.profile import Profile
from .process import POLL, end_process, has_open, is_held, locked, log_size, log_tail, read_state, spawn

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
    """Of treadle's code in it: a driver of other code is replaced."""
    settings: str
    """The profile it serves, as JSON: see `profile_settings`."""
    ready: bool


class DriverFiles:
    """Where a home's driver keeps what."""

    def __init__(self, home: Home) -> None:
        folder = home.driver
        self.log, self.state = folder / "driver.log", folder / "state.json"
        self.alive, self.start = folder / "alive.lock", folder / "start.lock"


def driver_alive(home: Home) -> bool:
    """Whether a driver of this home lives, ready or not."""
    return is_held(DriverFiles(home).alive)


def running_driver(home: Home) -> DriverState | None:
    """What the living driver says of itself; None without one, and for the moment in which it is being born."""
    files = DriverFiles(home)
    if not is_held(files.alive):
        return None
    state = read_state(files.state, DriverState)
    return state if state and has_open(state.pid, files.alive) else None


def ensure_driver(
    home: Home, profile: Profile | None = None, *, module: str = DRIVER_MODULE, timeout: float = START_TIMEOUT
) -> DriverState:
    """The ready driver of this home, started when there is none, replaced when it runs other code of treadle.

    With `profile` it serves that one; without, whichever it serves. Raises OtherProfile when the living driver serves
    another one, DriverFailed when it dies at start or is not ready after `timeout` seconds.
    """
    state = running_driver(home)
    if not (state and state.ready and state.fingerprint == code_fingerprint()):
        state = _start_once(home, profile, module, timeout)
    if profile is not None and state.settings != profile_settings(profile):
        raise _other_profile(state.settings, profile_settings(profile))
    return state


def _start_once(home: Home, profile: Profile | None, module: str, timeout: float) -> DriverState:
    files = DriverFiles(home)
    with locked(files.start, _LOCK_TIMEOUT):
        _end_other_code(home, files)
        begin = log_size(files.log)
        process = None if is_held(files.alive) else _spawn(home, files, profile, module)
        return _await_ready(home, files, process, begin, timeout)


def end_driver(home: Home) -> bool:
    """Ask the driver to end and wait for it, killing it after END_GRACE; whether there was one."""
    files = DriverFiles(home)
    with locked(files.start, _LOCK_TIMEOUT):
        state = _born_state(home, files)
        return end_process(state.pid if state else None, files.alive, END_GRACE)


def code_fingerprint() -> str:
    """Changes with any change of treadle's code or of the Python that runs it; about 2 ms."""
    import treadle

    digest = hashlib.sha256(f"{sys.executable} {platform.python_version()}".encode())
    for folder in sorted(set(treadle.__path__)):
        for path in sorted(Path(folder).rglob("*.py")):
            status = path.stat()
            digest.update(f"{path} {status.st_size} {status.st_mtime_ns}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()[:16]


def profile_settings(profile: Profile) -> str:
    """What matters to a driver: everything but the name, as far as it is no default."""
    return profile.model_dump_json(exclude={"name"}, exclude_defaults=True)


def own_state(*, started: float, fingerprint: str, settings: str, ready: bool) -> DriverState:
    """What this process, a driver, says of itself."""
    return DriverState(os.getpid(), started, version("treadle-orchestrator"), fingerprint, settings, ready)


def _end_other_code(home: Home, files: DriverFiles) -> None:
    if (state := _born_state(home, files)) and state.fingerprint != code_fingerprint():
        end_process(state.pid, files.alive, END_GRACE)


def _born_state(home: Home, files: DriverFiles) -> DriverState | None:
    """The living driver's state; one that has the lock writes it within moments."""
    deadline = time.monotonic() + _BIRTH
    while (state := running_driver(home)) is None and is_held(files.alive) and time.monotonic() < deadline:
        time.sleep(POLL)
    return state


def _spawn(home: Home, files: DriverFiles, profile: Profile | None, module: str) -> subprocess.Popen[bytes]:
    # -P: the working directory must not shadow modules.
    command = [sys.executable, "-P", "-m", module, "--embedded", "--home", str(home.path)]
    environ = dict(os.environ)
    if profile is not None:
        environ |= {"TREADLE_PROFILE": profile.name or "", "TREADLE_STORE": profile.store or ""}
    return spawn(command, folder=home.driver, log=files.log, environ=environ)


def _await_ready(
    home: Home, files: DriverFiles, process: subprocess.Popen[bytes] | None, begin: int, timeout: float
) -> DriverState:
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        if (state := running_driver(home)) and state.ready:
            return state
        ended = process is None or process.poll() is not None
        # Ended, but the lock held: it made way for one that somebody started by hand at the same time.
        if ended and not is_held(files.alive):
            code = "" if process is None else f" with exit code {process.returncode}"
            raise _failure(files, f"ended at start{code}", begin)
        time.sleep(POLL)
    raise _failure(files, f"was not ready within {timeout:g} s", begin)


def _other_profile(serves: str, asked: str) -> OtherProfile:
    one, other = json.loads(serves), json.loads(asked)
    differ = [name for name in sorted({*one, *other}) if one.get(name) != other.get(name)]
    return OtherProfile(
        f"the driver of this home is busy with another profile, which differs in {', '.join(differ)}",
        "`treadle dev down` ends it (its runs go on with the next one); or give this command its own TREADLE_HOME.",
    )


def _failure(files: DriverFiles, what: str, begin: int) -> DriverFailed:
    tail = log_tail(files.log, begin)
    return DriverFailed(f"the driver {what}", f"Its log {files.log} ends with:\n{tail or '(nothing)'}")
