"""CPython's own tests of `multiprocessing`, unmodified, on treadle.multiprocessing."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from e2e.hosts import hosts
from e2e.project import TREADLE, project
from emulators.lambda_place import lambda_place

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


@contextmanager
def here(folder: Path) -> Iterator[dict[str, str]]:
    """Processes on this machine."""
    yield {}


@contextmanager
def at_workers(folder: Path) -> Iterator[dict[str, str]]:
    """Processes at the 24 workers of this machine."""
    home = Home(folder)
    home.profiles.write_text("[many]\nslots = 24\n")
    try:
        yield {"TREADLE_HOME": str(home.path), "TREADLE_PROFILE": "many", "CPYTHON_SUITE_EXECUTOR": "local"}
    finally:
        embedded.down(home)


@contextmanager
def on_two_hosts(folder: Path) -> Iterator[dict[str, str]]:
    """Processes at twelve workers of each of two drivers with separate homes."""
    worker = [TREADLE, "worker", "--max-tasks", "12"]
    modules = str(RUNNER.parent)
    with project(folder, TREADLE_PEERS="tls://127.0.0.1:0", PYTHONPATH=modules) as found, hosts(found, worker) as made:
        made.start("left")
        made.start("right")
        yield {**found.environ, "CPYTHON_SUITE_EXECUTOR": "local"}


@contextmanager
def on_functions(folder: Path) -> Iterator[dict[str, str]]:
    """Processes in 24 functions of an emulated Lambda."""
    home = Home(folder / "home")
    with lambda_place(folder, concurrency=24) as place:
        place.deploy(str(home.key), code=[*place.code, str(RUNNER.parent)], timeout=300)
        home.profiles.write_text(place.profile("many", concurrency=24).replace("60s", "300s"))
        settings = {"TREADLE_PROFILE": "many", "TREADLE_PEERS": "tls://127.0.0.1:0", "CPYTHON_SUITE_EXECUTOR": "lambda"}
        try:
            yield {"TREADLE_HOME": str(home.path), **place.emulator.credentials, **settings}
        finally:
            embedded.down(home)


ELSEWHERE = [pytest.param(place, marks=pytest.mark.chaos) for place in (at_workers, on_two_hosts, on_functions)]


@pytest.fixture(scope="module", params=[here, *ELSEWHERE], ids=lambda place: place.__name__)
def outcomes(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[list[dict[str, Any]]]:
    """The outcomes of all tests."""
    with TemporaryDirectory() as folder, request.param(Path(folder)) as place:  # short: names of sockets are, too
        yield run(tmp_path_factory, {"PYTHONPATH": str(RUNNER.parent), **place} if place else {})


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
