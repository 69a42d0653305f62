"""The environment of worker processes: what makes runs repeatable is fixed, what belongs to the driver is withheld."""

from __future__ import annotations

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


class Surroundings:
    """What user code can change for those after it: environment, working directory, path of imports."""

    def __init__(self) -> None:
        self._settings, self._folder, self._path = dict(_SETTINGS), os.getcwd(), list(sys.path)

    def restore(self) -> None:
        """Put back what is gone or changed; entries that were added to the path stay (a bundle adds its own)."""
        if self._settings != _SETTINGS:
            os.environ.clear()
            os.environ.update({os.fsdecode(name): os.fsdecode(value) for name, value in self._settings.items()})
        if _folder() != self._folder:
            os.chdir(self._folder)
        sys.path += [entry for entry in self._path if entry not in sys.path]


def _folder() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:  # user code removed it
        return ""


def secret_variable(name: str) -> str:
    """The variable that holds the secret `name`, of drivers and of whoever runs tasks for them."""
    return "TREADLE_SECRET_" + re.sub(r"[-.]", "_", name).upper()


def worker_environment(driver: Mapping[str, str]) -> dict[str, str]:
    """The environment of a worker whose driver has the environment `driver`."""
    kept = {
        name: value
        for name, value in driver.items()
        if not name.upper().startswith(_WITHHELD) and name not in _DRIVERS_OWN
    }
    return _DEFAULTS | kept | FIXED
