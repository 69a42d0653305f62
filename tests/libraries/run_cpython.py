"""Run a share of the tests of `cpython_suite`, `run_cpython.py SHARE OF`, or some, `run_cpython.py CLASS[.TEST]...`.

It writes a JSON line for each test. The tests of `TABLES` do not run.
"""

from __future__ import annotations

import importlib
import json
import signal
import sys
import time
import tomllib
import traceback
import unittest
from collections.abc import Iterator
from pathlib import Path
from typing import Any

cpython_suite: Any = importlib.import_module("cpython_suite")  # beside this file

LIMIT = 200
"""Seconds for one test."""
TABLES = ["cpython_left_out.toml", *(["cpython_left_out_at_workers.toml"] if cpython_suite.executor else [])]
LEFT_OUT: dict[str, str] = {}
for table in TABLES:
    LEFT_OUT |= tomllib.loads((Path(__file__).parent / table).read_text("utf-8"))


_lines, sys.stdout = sys.stdout, sys.stderr
"""Tests print, too."""


class Lines(unittest.TestResult):
    """Writes the outcome of each test as a line."""

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        self.problem = ""
        signal.setitimer(signal.ITIMER_REAL, LIMIT)
        self.began = time.monotonic()

    def stopTest(self, test: unittest.TestCase) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        write(name_of(test), self.problem or "passed", time.monotonic() - self.began)

    def addError(self, test: Any, err: Any) -> None:
        self.problem = "".join(traceback.format_exception(*err))
        if not isinstance(test, unittest.TestCase):
            write(str(test), self.problem, 0.0)  # the set-up of a class

    addFailure = addError

    def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:
        if err is not None:
            self.addError(test, err)

    def addSkip(self, test: Any, reason: str) -> None:
        self.problem = f"skipped: {reason}"


def name_of(test: unittest.TestCase) -> str:
    return f"{type(test).__name__}.{test.id().rpartition('.')[2]}"


def write(test: str, outcome: str, seconds: float) -> None:
    _lines.write(json.dumps({"test": test, "outcome": outcome, "seconds": round(seconds, 2)}) + "\n")
    _lines.flush()


def late(*_: object) -> None:
    raise TimeoutError(f"the test took more than {LIMIT} seconds")


def tests(suite: unittest.TestSuite) -> Iterator[unittest.TestCase]:
    for one in suite:
        if isinstance(one, unittest.TestSuite):
            yield from tests(one)
        else:
            yield one


def share(number: int, of: int) -> unittest.TestSuite:
    """Return every `of`-th class."""
    found = list(tests(unittest.defaultTestLoader.loadTestsFromModule(cpython_suite)))
    names = {name for test in found for name in (type(test).__name__, name_of(test))}
    for name in LEFT_OUT.keys() - names:
        write(name, "cpython_left_out.toml names a test that does not exist", 0.0)
    kept = [test for test in found if LEFT_OUT.keys().isdisjoint({type(test).__name__, name_of(test)})]
    classes = sorted({type(test).__name__ for test in kept})[number::of]
    return unittest.TestSuite(test for test in kept if type(test).__name__ in classes)


if __name__ == "__main__":
    signal.signal(signal.SIGALRM, late)
    if sys.argv[1].isdigit():
        chosen = share(int(sys.argv[1]), int(sys.argv[2]))
    else:
        chosen = unittest.defaultTestLoader.loadTestsFromNames(sys.argv[1:], cpython_suite)
    cpython_suite.setUpModule()
    chosen.run(Lines())
    cpython_suite.tearDownModule()
    write("all", "ended", 0.0)
