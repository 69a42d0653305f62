"""The environment of worker processes: what makes runs repeatable is fixed, what belongs to the driver is withheld."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Mapping

FIXED = {"PYTHONHASHSEED": "0", "PYTHONUTF8": "1"}
"""What a running interpreter cannot change: iteration order of sets and text encoding must not depend on the host."""

_DEFAULTS = {"ARROW_DEFAULT_MEMORY_POOL": "system"}
"""Arrow's own allocator reserves a gibibyte at once, which a memory limit would count; malloc is as fast."""

_WITHHELD = ("TREADLE_", "TEMPORAL_", "OW_", "__OW_", "WSK_")
"""Settings and credentials of the driver and its providers. AWS_* stays: stores need it."""

_DRIVERS_OWN = ("PYTHONINSPECT", "PYTHONSTARTUP", "PYTHONUNBUFFERED")
"""Settings of Python that are meant for the driver's own process."""


_SETTINGS: dict[bytes, bytes] = vars(os.environ)["_data"]
"""Behind `os.environ`, which encodes and decodes every name on the way: a task of a loop would wait for that."""


class WorkFolder:
    """The working directory of tasks: a temporary folder of this process, which each partition finds empty."""

    def __init__(self, path: str = "") -> None:
        """`path`: a folder that this process was given; empty: make one."""
        self._path = path or _new_folder()

    def enter(self) -> None:
        """Make it the working directory. Raises OSError when there is no room for a folder.

        User code may have left it, removed it, put a link in its place or changed its mode; then there is a new one.
        """
        try:
            _enter(self._path)
        except OSError:
            self._path = _new_folder()
            _enter(self._path)

    def empty(self) -> None:
        """Enter it, and remove what is in it. Raises OSError."""
        self.enter()
        for name in os.listdir():
            _remove(name)


def _new_folder() -> str:
    import tempfile

    os.makedirs(tempfile.gettempdir(), exist_ok=True)  # a function's handler removes it between two calls
    return tempfile.mkdtemp(prefix=f"treadle-{os.getpid()}-work-")  # the guard of this process removes it


def _enter(path: str) -> None:
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fchdir(folder)
    finally:
        os.close(folder)


def _remove(name: str) -> None:
    """Remove an entry of the working directory; what a link leads to stays."""
    import shutil

    if os.path.isdir(name) and not os.path.islink(name):
        shutil.rmtree(name, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            os.unlink(name)


class Surroundings:
    """What user code can change for those after it: environment, path of imports."""

    def __init__(self) -> None:
        self._settings, self._path = dict(_SETTINGS), list(sys.path)

    def restore(self) -> None:
        """Put back what is gone or changed; entries that were added to the path stay (a bundle adds its own)."""
        if self._settings != _SETTINGS:
            os.environ.clear()
            os.environ.update({os.fsdecode(name): os.fsdecode(value) for name, value in self._settings.items()})
        sys.path += [entry for entry in self._path if entry not in sys.path]


def secret_variable(name: str) -> str:
    """The variable that holds the secret `name`, of drivers and of whoever runs tasks for them."""
    return "TREADLE_SECRET_" + re.sub(r"[-.]", "_", name).upper()


def is_withheld(name: str) -> bool:
    """Whether a worker never finds this variable as its driver has it."""
    return name.upper().startswith(_WITHHELD) or name in _DRIVERS_OWN or name in FIXED


def worker_environment(driver: Mapping[str, str]) -> dict[str, str]:
    """The environment of a worker whose driver has the environment `driver`."""
    kept = {name: value for name, value in driver.items() if not is_withheld(name)}
    return _DEFAULTS | kept | FIXED
