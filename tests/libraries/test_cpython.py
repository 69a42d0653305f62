"""CPython's own tests of `multiprocessing` and `concurrent.futures`, unmodified, on treadle.multiprocessing."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from e2e.hosts import hosts
from e2e.project import TREADLE, project
from emulators.lambda_place import lambda_place
from libraries.programs import cluster
from orchestrator.client.test_sessions_on_functions import emulated_openwhisk

from treadle.orchestrator import embedded
from treadle.orchestrator.environment.home import Home

RUNNER = Path(__file__).parent / "run_cpython.py"
SHARES = 4
"""Processes that run the tests. They mostly wait."""
AT_LEAST = 150
"""Tests that pass, in every supported version of Python."""
FUTURES_AT_LEAST = 50
"""The part of `concurrent.futures` in them."""

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        importlib.util.find_spec("test") is None or importlib.util.find_spec("test._test_multiprocessing") is None,
        reason="this Python has no tests of its own: `make system-packages` installs them for Debian's",
    ),
]


def futures_tests() -> Path | None:
    """The tests of `concurrent.futures`, a file or a folder: of this interpreter, or of Debian's with its version."""
    folders = [*importlib.import_module("test").__path__, f"/usr/lib/python3.{sys.version_info.minor}/test"]
    found = [Path(folder, f"test_concurrent_futures{ending}") for folder in folders for ending in ("", ".py")]
    return next((path for path in found if path.exists()), None)


def modules(copies: Path) -> list[str]:
    """The folders of the modules that processes import, one of them new."""
    copies.mkdir()
    if found := futures_tests():
        copy: Any = shutil.copytree if found.is_dir() else shutil.copy
        copy(found, copies / found.name)
    return [str(RUNNER.parent), str(copies)]


def path_of(copies: Path) -> str:
    return os.pathsep.join(modules(copies))


@contextmanager
def here(folder: Path) -> Iterator[dict[str, str]]:
    """Processes on this machine."""
    yield {"PYTHONPATH": path_of(folder / "copies")}


@contextmanager
def at_workers(folder: Path) -> Iterator[dict[str, str]]:
    """Processes at the 24 workers of this machine."""
    home = Home(folder / "home")
    home.profiles.write_text("[many]\nslots = 24\n")
    with executor("local", home, folder) as environ:
        yield environ


@contextmanager
def on_two_hosts(folder: Path) -> Iterator[dict[str, str]]:
    """Processes at twelve workers of each of two drivers with separate homes."""
    worker, path = [TREADLE, "worker", "--max-tasks", "12"], path_of(folder / "copies")
    with project(folder, TREADLE_PEERS="tls://127.0.0.1:0", PYTHONPATH=path) as found, hosts(found, worker) as made:
        made.start("left")
        made.start("right")
        yield {**found.environ, "CPYTHON_SUITE_EXECUTOR": "local"}


@contextmanager
def on_functions(folder: Path) -> Iterator[dict[str, str]]:
    """Processes in 24 functions of an emulated Lambda."""
    home = Home(folder / "home")
    with lambda_place(folder, concurrency=24) as place:
        place.deploy(str(home.key), code=[*place.code, *modules(folder / "code")], timeout=300)
        home.profiles.write_text(place.profile("many", concurrency=24).replace("60s", "300s"))
        with executor("lambda", home, folder) as environ:
            yield {**environ, **place.emulator.credentials}


@contextmanager
def in_actions(folder: Path) -> Iterator[dict[str, str]]:
    """Processes in 24 actions of an emulated OpenWhisk."""
    home = Home(folder / "home")
    environment = {"PYTHONPATH": path_of(folder / "code")}
    with (
        TemporaryDirectory() as short,
        emulated_openwhisk(home, Path(short), seconds=300, environment=environment) as found,
    ):
        profile = found.profile.replace("[functions", "[many").replace("60s", "300s")
        home.profiles.write_text(profile.replace("concurrency = 2", "concurrency = 24"))
        with executor("openwhisk", home, folder) as environ:
            yield environ


@contextmanager
def executor(name: str, home: Home, folder: Path) -> Iterator[dict[str, str]]:
    """The profile `many` of a home, whose servers end with the block."""
    try:
        yield {**cluster(home, "many"), "CPYTHON_SUITE_EXECUTOR": name, "PYTHONPATH": path_of(folder / "copies")}
    finally:
        embedded.down(home)


ELSEWHERE = [
    pytest.param(place, marks=pytest.mark.chaos) for place in (at_workers, on_two_hosts, on_functions, in_actions)
]


@pytest.fixture(scope="module", params=[here, *ELSEWHERE], ids=lambda place: place.__name__)
def outcomes(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[list[dict[str, Any]]]:
    """The outcomes of all tests."""
    with TemporaryDirectory() as folder, request.param(Path(folder)) as place:  # short: names of sockets are, too
        yield run(tmp_path_factory, place)


def run(folders: pytest.TempPathFactory, environ: Mapping[str, str]) -> list[dict[str, Any]]:
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


@pytest.mark.skipif(
    importlib.util.find_spec("test") is None or futures_tests() is None,
    reason="there are no tests of concurrent.futures: `make system-packages` installs them",
)
def test_tests_of_futures_pass(outcomes: list[dict[str, Any]]) -> None:
    passed = [one["test"] for one in outcomes if one["outcome"] == "passed"]
    assert sum(name.startswith("ProcessPool") for name in passed) >= FUTURES_AT_LEAST
