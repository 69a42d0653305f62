"""CPython's own tests of `multiprocessing`, from the library of this interpreter, on treadle.

A module of its own: the processes of the tests import it by its name.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

import treadle.multiprocessing

treadle.multiprocessing.install()
executor = os.environ.pop("CPYTHON_SUITE_EXECUTOR", "")
if executor:
    treadle.multiprocessing.set_executor(executor)
    globals()["__file__"] = None  # like an installed module: workers import it, and do not get it by value

support: Any = importlib.import_module("test.support")
suite: Any = importlib.import_module("test._test_multiprocessing")  # it reads the names of `multiprocessing` now
support.use_resources = {}  # tests that want minutes or much CPU are skipped
# The machine may be busy: more seconds for a process to start a thread, and to end.
suite.DELTA = 0.3
support.SHORT_TIMEOUT = support.LONG_TIMEOUT
suite.install_tests_in_module_dict(globals(), "spawn")
