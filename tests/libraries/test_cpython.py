"""CPython's own tests of `multiprocessing`, unmodified, on treadle.multiprocessing."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

RUNNER = Path(__file__).parent / "run_cpython.py"
SHARES = 4
"""Processes that run the tests. They mostly wait."""
AT_LEAST = 150
"""Tests that pass, in every supported version of Python."""

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        importlib.util.find_spec("test") is None or importlib.util.find_spec("test._test_multiprocessing") is None,
        reason="this Python has no tests of its own: install them, for example libpython3-testsuite",
    ),
]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    runners = []
    for number in range(SHARES):
        folder = tmp_path_factory.mktemp("share")  # the tests write files
        command = [sys.executable, "-W", "ignore", str(RUNNER), str(number), str(SHARES)]
        with (folder / "errors").open("w") as errors:
            runner = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=errors, text=True)
        runners.append(runner)
    return [json.loads(line) for runner in runners for line in runner.communicate()[0].splitlines()]


def test_tests_of_cpython_pass(outcomes: list[dict[str, Any]]) -> None:
    failed = [
        f"{one['test']} ({one['seconds']} s): {one['outcome']}"
        for one in outcomes
        if one["outcome"] not in ("passed", "ended") and not one["outcome"].startswith("skipped")
    ]
    assert not failed, "\n".join(failed)


def test_tests_of_cpython_run_to_their_end(outcomes: list[dict[str, Any]]) -> None:
    assert [one["test"] for one in outcomes if one["outcome"] == "ended"] == ["all"] * SHARES
    assert sum(one["outcome"] == "passed" for one in outcomes) >= AT_LEAST
