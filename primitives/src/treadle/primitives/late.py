"""Packages whose names are imported when they are first asked for."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def late(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` (PEP 562) of a package: name -> the module that has it, relative to the package (`.member`)."""

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = vars(sys.modules[package])[name] = getattr(import_module(homes[name], package), name)
        return found

    return find
