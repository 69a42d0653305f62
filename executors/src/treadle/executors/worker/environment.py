"""The environment of worker processes: settings for repeatable runs are fixed, and the driver's settings are
withheld."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Mapping

KEY_VARIABLE = "TREADLE_KEY"
"""A function's deployment key in Base64, set at deployment."""
KEY_FROM_VARIABLE = "TREADLE_KEY_FROM"
"""Alternative to `TREADLE_KEY`: the location of the key, in the notation of the provider's `fetch_key`."""
FIXED = {"PYTHONHASHSEED": "0", "PYTHONUTF8": "1"}
"""Settings that a running interpreter cannot change: iteration order of sets and text encoding must not depend on the
host."""

_DEFAULTS = {"ARROW_DEFAULT_MEMORY_POOL": "system"}
"""Arrow's own allocator reserves a gibibyte at once, which a memory limit would count; malloc is as fast."""

_WITHHELD = ("TREADLE_", "TEMPORAL_", "OW_", "__OW_", "WSK_")
"""Settings and credentials of the driver and its providers. AWS_* stays, because stores need it."""

_DRIVERS_OWN = ("PYTHONINSPECT", "PYTHONSTARTUP", "PYTHONUNBUFFERED")
"""Settings of Python that are meant for the driver's own process."""


_SETTINGS: dict[bytes, bytes] = vars(os.environ)["_data"]
"""The data behind `os.environ`. Reading it directly avoids encoding and decoding every name, which would delay tasks of
a loop."""


class WorkFolder:
    """The working directory of tasks: a temporary folder of this process, empty at the start of each partition."""

    def __init__(self, path: str = "") -> None:
        """`path`: a folder assigned to this process; empty: create one."""
        self._path = path or _new_folder()

    def enter(self) -> None:
        """Make it the working directory. Raises OSError when a folder cannot be created.

        A new folder is created if user code removed it, replaced it by a link or changed its mode.
        """
        try:
            _enter(self._path)
        except OSError:
            self._path = _new_folder()
            _enter(self._path)

    def empty(self) -> None:
        """Enter it, and remove its content. Raises OSError."""
        self.enter()
        for name in os.listdir():
            _remove(name)


def _new_folder() -> str:
    import tempfile

    os.makedirs(tempfile.gettempdir(), exist_ok=True)  # a function's handler removes it between calls
    return tempfile.mkdtemp(prefix=f"treadle-{os.getpid()}-work-")  # the orphan guard of this process removes it


def _enter(path: str) -> None:
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fchdir(folder)
    finally:
        os.close(folder)


def _remove(name: str) -> None:
    """Remove an entry of the working directory, without following links."""
    import shutil

    if os.path.isdir(name) and not os.path.islink(name):
        shutil.rmtree(name, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            os.unlink(name)


class Surroundings:
    """State that user code can change for later tasks: environment, import path."""

    def __init__(self) -> None:
        self._settings, self._path = dict(_SETTINGS), list(sys.path)

    def restore(self) -> None:
        """Restore removed and changed entries. Entries added to the path stay (a bundle adds its own)."""
        if self._settings != _SETTINGS:
            os.environ.clear()
            os.environ.update({os.fsdecode(name): os.fsdecode(value) for name, value in self._settings.items()})
        sys.path += [entry for entry in self._path if entry not in sys.path]


def secret_variable(name: str) -> str:
    """The variable that holds the secret `name`, for drivers and for processes that run tasks for them."""
    return "TREADLE_SECRET_" + re.sub(r"[-.]", "_", name).upper()


def is_withheld(name: str) -> bool:
    """Whether a worker never receives the driver's value of this variable."""
    return name.upper().startswith(_WITHHELD) or name in _DRIVERS_OWN or name in FIXED


def worker_environment(driver: Mapping[str, str]) -> dict[str, str]:
    """The environment of a worker whose driver has the environment `driver`."""
    kept = {name: value for name, value in driver.items() if not is_withheld(name)}
    return _DEFAULTS | kept | FIXED
