"""CPython's own tests of `multiprocessing`, unmodified, on treadle.multiprocessing."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from treadle.orchestrator import embedded
from treadle.orchestrator.environment.home import Home

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


@pytest.fixture(scope="module", params=["here", pytest.param("at workers", marks=pytest.mark.chaos)])
def outcomes(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[list[dict[str, Any]]]:
    """The outcomes of all tests, with processes on this machine, or at the 24 workers of an executor."""
    if request.param == "here":
        yield run(tmp_path_factory, {})
        return
    home = Home(tmp_path_factory.mktemp("home"))
    home.profiles.write_text("[many]\nslots = 24\n")
    place = {"TREADLE_HOME": str(home.path), "TREADLE_PROFILE": "many", "PYTHONPATH": str(RUNNER.parent)}
    try:
        yield run(tmp_path_factory, {**place, "CPYTHON_SUITE_EXECUTOR": "local"})
    finally:
        embedded.down(home)


def run(folders: pytest.TempPathFactory, environ: dict[str, str]) -> list[dict[str, Any]]:
    runners = []
    for number in range(SHARES):
        folder = folders.mktemp("share")  # the tests write files
        command = [sys.executable, "-W", "ignore", str(RUNNER), str(number), str(SHARES)]
        with (folder / "errors").open("w") as errors:
            runner = subprocess.Popen(
                command, cwd=folder, stdout=subprocess.PIPE, stderr=errors, text=True, env={**os.environ, **environ}
            )
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
