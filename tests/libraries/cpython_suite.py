"""CPython's own tests of `multiprocessing` and `concurrent.futures`, for this interpreter, on treadle.

A module of its own: the processes of the tests import it by its name.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
from types import ModuleType
from typing import Any

import treadle.multiprocessing

treadle.multiprocessing.install()
executor = os.environ.pop("CPYTHON_SUITE_EXECUTOR", "")
if executor:
    treadle.multiprocessing.set_executor(executor)
    globals()["__file__"] = None  # like an installed module: workers import it, and do not get it by value


def futures_modules() -> list[ModuleType]:
    """The tests of `concurrent.futures`: one module, or a package of modules. None where there are none."""
    try:
        found = importlib.import_module("test_concurrent_futures")
    except ModuleNotFoundError:
        return []
    names = [name for _, name, _ in pkgutil.iter_modules(getattr(found, "__path__", ()))]
    return [found, *(importlib.import_module(f"{found.__name__}.{name}") for name in names)]


def futures_tests(module: ModuleType) -> dict[str, Any]:
    """Classes of process pools. All start methods are one, and thread pools use nothing of treadle."""
    if executor:
        vars(module)["__file__"] = None
    classes = {name: found for name, found in vars(module).items() if isinstance(found, type)}
    return {name: found for name, found in classes.items() if name.startswith("ProcessPoolSpawn")}


support: Any = importlib.import_module("test.support")
suite: Any = importlib.import_module("test._test_multiprocessing")  # it reads the names of `multiprocessing` now
support.use_resources = {}  # tests that want minutes or much CPU are skipped
# The machine may be busy: more seconds for a process to start a thread, and to end.
suite.DELTA = 0.6
support.SHORT_TIMEOUT = support.LONG_TIMEOUT
suite.install_tests_in_module_dict(globals(), "spawn")

threads: Any = importlib.import_module("test.support.threading_helper")
threads.threading_cleanup = lambda *_: None  # it would wait a second for treadle's threads, which stay
for module in futures_modules():
    globals().update(futures_tests(module))
