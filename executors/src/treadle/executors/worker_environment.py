"""The environment of worker processes: what makes runs repeatable is fixed, what belongs to the driver is withheld."""

from __future__ import annotations

from collections.abc import Mapping

FIXED = {"PYTHONHASHSEED": "0", "PYTHONUTF8": "1"}
"""What a running interpreter cannot change: iteration order of sets and text encoding must not depend on the host."""

_DEFAULTS = {"ARROW_DEFAULT_MEMORY_POOL": "system"}
"""Arrow's own allocator reserves a gibibyte at once, which a memory limit would count; malloc is as fast."""

_WITHHELD = ("TREADLE_", "TEMPORAL_", "OW_", "__OW_", "WSK_")
"""Settings and credentials of the driver and its providers. AWS_* stays: stores need it."""

_DRIVERS_OWN = ("PYTHONINSPECT", "PYTHONSTARTUP", "PYTHONUNBUFFERED")
"""Settings of Python that are meant for the driver's own process."""


def worker_environment(driver: Mapping[str, str]) -> dict[str, str]:
    """The environment of a worker whose driver has the environment `driver`."""
    kept = {
        name: value
        for name, value in driver.items()
        if not name.upper().startswith(_WITHHELD) and name not in _DRIVERS_OWN
    }
    return _DEFAULTS | kept | FIXED
