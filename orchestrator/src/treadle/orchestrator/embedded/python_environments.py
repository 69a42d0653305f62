"""The Python environments that use one home. Each has its own driver and its own task queue.

The first environment of a home has the folder `driver` and the queue of the profile. A later environment has a
subfolder and a queue whose names carry its digest. A home of an earlier version has no record of environments, so the
first environment that uses it takes over the driver and the runs of that version.
"""

from __future__ import annotations

import hashlib
import os
import platform
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from treadle.primitives.errors import UsageError
from treadle.primitives.stores.atomic_files import create_file, write_file

from ..environment.home import Home
from ..environment.profile_table import CommandSettings
from .detached_process import read_state

FIRST = ""
"""The name of the first environment of a home."""
_RECORD = "environment.json"
_MARK = "@"


class PythonEnvironment(Struct, frozen=True):
    """The properties that decide which modules a process can import."""

    prefix: str
    """`sys.prefix`: the folder of the virtual environment, or of the installation."""
    version: str
    """For example `3.12`."""
    path: tuple[str, ...]
    """The folders of `PYTHONPATH`, absolute."""
    executable: str

    @property
    def digest(self) -> str:
        """Eight hexadecimal digits, the same for every program that starts this environment's interpreter."""
        parts = msgspec.json.encode((self.prefix, self.version, self.path))
        return hashlib.sha256(parts).hexdigest()[:8]

    @property
    def exists(self) -> bool:
        return os.access(self.executable, os.X_OK)

    def __str__(self) -> str:
        path = f", PYTHONPATH={os.pathsep.join(self.path)}" if self.path else ""
        return f"{self.prefix} (Python {self.version}{path})"


class EnvironmentGone(UsageError):
    """A run belongs to an environment that no longer exists on this machine."""


def this_environment(environ: Mapping[str, str] = os.environ) -> PythonEnvironment:
    """The environment of this process."""
    path = tuple(os.path.abspath(entry) for entry in environ.get("PYTHONPATH", "").split(os.pathsep) if entry)
    version = ".".join(platform.python_version_tuple()[:2])
    return PythonEnvironment(sys.prefix, version, path, sys.executable)


def name_of(home: Home, environment: PythonEnvironment | None = None) -> str:
    """FIRST, or the environment's digest. An environment that uses an empty home becomes its first one."""
    known = _read(home.driver)
    digest = (environment or this_environment()).digest
    return FIRST if known is None or known.digest == digest else digest


def register(home: Home, environment: PythonEnvironment | None = None) -> str:
    """Record the environment. Returns its name."""
    environment = environment or this_environment()
    data = msgspec.json.encode(environment)
    if _read(home.driver) is None and not create_file(home.driver / _RECORD, [data]) and _read(home.driver) is None:
        write_file(home.driver / _RECORD, [data], durable=False)  # the record was damaged
    name = name_of(home, environment)
    if name != FIRST:
        folder_of(home, name).mkdir(mode=0o700, exist_ok=True)
        write_file(folder_of(home, name) / _RECORD, [data], durable=False)
    return name


def known_environments(home: Home) -> Iterator[tuple[str, PythonEnvironment]]:
    """(name, environment) of each environment that has used the home. The first environment comes first."""
    for folder in (home.driver, *sorted(home.driver.glob("[0-9a-f]" * 8))):
        if (environment := _read(folder)) is not None:
            yield (FIRST if folder == home.driver else folder.name), environment


def other_environment(home: Home, queue: str) -> PythonEnvironment | None:
    """The environment of the queue. None: the environment of this process. Raises EnvironmentGone."""
    name = name_in(queue)
    if name == name_of(home):
        return None
    found = dict(known_environments(home)).get(name)
    if found is not None and found.exists:
        return found
    raise EnvironmentGone(
        f"the run belongs to another Python environment, which is gone: {found or name}",
        "Make it again at the same place; or end the run by `treadle terminate`, then `treadle resume` goes on with it "
        "in this environment.",
    )


def folder_of(home: Home, name: str) -> Path:
    """The folder of the environment's driver, with its log, state and locks."""
    return home.driver / name


def task_queue(home: Home, settings: CommandSettings) -> str:
    """The queue that the drivers of this environment serve. On the embedded default each environment has its own."""
    return queue_of(settings.queue, name_of(home)) if settings.embedded else settings.queue


def queue_of(queue: str, name: str) -> str:
    """The task queue of an environment. `queue`: the profile's queue."""
    return f"{queue}{_MARK}{name}" if name else queue


def name_in(queue: str) -> str:
    """The name of the queue's environment."""
    return queue.rpartition(_MARK)[2] if _MARK in queue else FIRST


def worker_identity(name: str) -> str:
    """Temporal's name for every driver of an environment."""
    return f"embedded driver {name}" if name else "embedded driver"


def installed() -> str:
    """A digest of the names and versions of the distributions installed in the environment of this process."""
    names: set[str] = set()
    for folder in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *this_environment().path}:
        if os.path.isdir(folder):
            names.update(entry for entry in os.listdir(folder) if entry.endswith((".dist-info", ".egg-info")))
    return hashlib.sha256("\n".join(sorted(names)).encode(errors="surrogateescape")).hexdigest()


def _read(folder: Path) -> PythonEnvironment | None:
    return read_state(folder / _RECORD, PythonEnvironment)
