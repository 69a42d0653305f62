"""`import multiprocessing` means treadle's: this package replaces the names of the standard module.

The module stays the same object, since other modules hold it: `concurrent.futures` asks it for its context. Of its
submodules there are copies with our classes, because the originals use their own classes.
"""

from __future__ import annotations

import importlib
import multiprocessing.connection
import multiprocessing.context
import multiprocessing.managers
import multiprocessing.pool
import multiprocessing.queues
import multiprocessing.sharedctypes
import multiprocessing.synchronize
import sys
import types
from collections.abc import Iterable
from typing import Any

FUNCTIONS = ("RawValue", "RawArray", "Value", "Array")
"""The functions of `sharedctypes` that make memory."""
LOCKS = ("Barrier", "BoundedSemaphore", "Condition", "Event", "Lock", "RLock", "Semaphore")
"""The classes of `synchronize`."""
_installed = [False]
_NAMES = {
    "connection": ("connections", ["wait"]),
    "managers": ("connections", ["SyncManager"]),
    "pool": ("pool", ["Pool"]),
    "queues": ("queues", ["JoinableQueue", "Queue", "SimpleQueue"]),
    "synchronize": ("synchronize", LOCKS),
}
"""Of submodules of `multiprocessing`: our module, and the classes and functions that it has in their place."""


def install() -> None:
    """Replace the names of `multiprocessing`, for this process and its children."""
    if _installed[0]:
        return
    _installed[0] = True
    sys.meta_path.insert(0, _Dill)
    package = importlib.import_module(__package__)
    for name in package.__all__:
        if hasattr(multiprocessing, name):
            setattr(multiprocessing, name, getattr(package, name))
    serializers = multiprocessing.managers.listener_client  # type: ignore[attr-defined]
    serializers["pickle"] = serializers["treadle"]
    for name, (module, names) in _NAMES.items():
        _replace(name, importlib.import_module(f"{__package__}.{module}"), names)
    _replace("sharedctypes", package, FUNCTIONS)
    context: Any = multiprocessing.context._default_context
    context._actual_context = package.get_context()


class _Dill:
    """Lets libraries that pickle with dill send a function of `__main__` with the globals that it uses."""

    @staticmethod
    def find_spec(name: str, *_: Any) -> None:
        """Change a setting of dill while it is imported. Nothing is found here."""
        if name == "dill._dill":
            importlib.import_module("dill.settings").settings["recurse"] = True


def _replace(name: str, ours: types.ModuleType, names: Iterable[str]) -> None:
    standard = getattr(multiprocessing, name)
    copy = types.ModuleType(standard.__name__, standard.__doc__)
    vars(copy).update(vars(standard))
    for one in names:
        setattr(copy, one, getattr(ours, one))
    sys.modules[standard.__name__] = copy
    setattr(multiprocessing, name, copy)


def is_installed() -> bool:
    return _installed[0]
