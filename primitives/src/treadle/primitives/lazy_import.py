"""Imports on first use: the names of a package, and the optional library pyarrow."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from .errors import UsageError


def late(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a package's `__getattr__` (PEP 562). `homes` maps a name to its module, relative to the package
    (`.member`).
    """

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = vars(sys.modules[package])[name] = getattr(import_module(homes[name], package), name)
        return found

    return find


def pyarrow(what: str, module: str = "pyarrow") -> Any:
    """Return pyarrow, or one of its modules, for the feature `what`. Raises UsageError when it is not installed."""
    try:
        return import_module(module)
    except ImportError as error:
        hint = "Install treadle-primitives[arrow] where workers run."
        raise UsageError(f"{what} needs pyarrow, which is not installed", hint) from error
