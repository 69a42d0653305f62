"""Sessions whose calls run on emulated Lambda or OpenWhisk, and in part on this machine."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from operator import add, mul
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from emulators import openwhisk as actions
from emulators.lambda_place import lambda_place
from orchestrator.commands import Terminal

from treadle.client import Session, session
from treadle.orchestrator import embedded
from treadle.orchestrator.environment.home import Home
from treadle.primitives.errors import UsageError

OPENWHISK = """
[functions]
executor = "openwhisk"
slots = 1
[functions.executors.openwhisk]
endpoint = "{endpoint}"
sizes = [1024]
timeout = "60s"
concurrency = 2
files = true
"""
PATIENCE = 120


class Functions(NamedTuple):
    """An emulated provider with treadle's functions."""

    executor: str
    profile: str
    environment: Mapping[str, str]
    taken: Callable[[], int]
    """Calls of functions so far."""


@contextmanager
def opened(home: Home, functions: Functions) -> Iterator[Session]:
    """A session whose calls run there."""
    home.profiles.write_text(functions.profile)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in functions.environment.items():
            patch.setenv(name, value)
        try:
            with session("far", profile="functions", home=home.path) as found:
                yield found
        finally:
            embedded.down(home)


@contextmanager
def emulated_lambda(home: Home, folder: Path) -> Iterator[Functions]:
    with lambda_place(folder) as place:
        place.deploy(str(home.key))
        emulator = place.emulator
        yield Functions("lambda", place.profile(), emulator.credentials, lambda: len(emulator.taken))


@contextmanager
def emulated_openwhisk(home: Home, folder: Path, **deployment: Any) -> Iterator[Functions]:
    """`deployment`: see `actions.deploy`."""
    with actions.openwhisk(folder) as emulator:
        actions.deploy(emulator, str(home.key), **deployment)
        secret = home.secrets / "openwhisk"
        secret.touch(mode=0o600)
        secret.write_text(emulator.key)
        profile = OPENWHISK.format(endpoint=emulator.endpoint)
        yield Functions("openwhisk", profile, {}, lambda: len(emulator.activations))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    return Home(tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="module", params=[emulated_lambda, emulated_openwhisk], ids=["lambda", "openwhisk"])
def functions(
    home: Home, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Functions]:
    with request.param(home, tmp_path_factory.mktemp("functions")) as found:
        yield found


@pytest.fixture(scope="module")
def calls(functions: Functions, home: Home) -> Iterator[Session]:
    with opened(home, functions) as found:
        yield found


def test_calls_and_their_results_travel_to_functions_and_back(calls: Session, functions: Functions) -> None:
    before = functions.taken()
    three = calls.submit(add, 1, 2)
    squares = calls.map(lambda number: number**2, range(20), chunk=5)
    assert calls.submit(sum, squares).result(PATIENCE) == sum(number**2 for number in range(20))
    assert calls.submit(mul, three, three).result(PATIENCE) == 9
    assert functions.taken() >= before + 3


def test_results_that_a_payload_cannot_hold_go_through_the_store(calls: Session) -> None:
    given = bytes(range(256)) * 40_000
    doubled = calls.submit(lambda data: data * 2, given)
    assert doubled.result(PATIENCE) == given * 2
    assert calls.submit(len, doubled).result(PATIENCE) == 2 * len(given)


def test_call_names_another_executor_and_shares_its_results(calls: Session, functions: Functions) -> None:
    far = calls.submit(add, 1, 1)
    assert far.result(PATIENCE) == 2
    before = functions.taken()
    assert calls.with_options(executor="local").submit(mul, far, 5).result(PATIENCE) == 10
    assert functions.taken() == before


def test_large_result_in_the_memory_of_this_host_reaches_a_function(calls: Session) -> None:
    near = calls.with_options(executor="local").submit(bytes, 1 << 20)
    assert calls.submit(len, near).result(PATIENCE) == 1 << 20


def test_map_reduce_exchanges_parts_between_functions(calls: Session, functions: Functions) -> None:
    before = functions.taken()
    numbers = list(range(60))
    by_key = calls.map_reduce(lambda n: [(n % 7, [n])], numbers, add, per="key", chunk=10, reducers=3)
    assert by_key.result(PATIENCE) == {key: numbers[key::7] for key in range(7)}
    assert calls.map_reduce(str, numbers, add, chunk=3, initial="0").result(PATIENCE) == "0" + "".join(
        map(str, numbers)
    )
    assert functions.taken() > before


def test_exception_in_a_function_is_raised_here(calls: Session) -> None:
    def refuse(folder: Path) -> None:
        raise FileNotFoundError(f"{folder} is elsewhere")

    error = calls.submit(refuse, Path("here")).exception(PATIENCE)
    assert isinstance(error, FileNotFoundError)
    assert "in refuse" in str(error.__cause__)


def test_call_that_needs_more_memory_than_any_size_is_refused(calls: Session) -> None:
    with pytest.raises(UsageError, match=r"has at most .*, and `memory` is 8GiB"):
        calls.with_options(memory=8 << 30)


def test_cost_of_calls_is_that_of_their_executors(calls: Session, functions: Functions, home: Home) -> None:
    near = calls.with_options(executor="local").map(abs, range(-3, 0))
    assert list(near.results(PATIENCE)) == [3, 2, 1]
    options = {"TREADLE_PROFILE": "functions", **functions.environment}
    shown = Terminal(home.path, home.path, options).run("show", calls.id, "--cost", "-o", "json")
    assert shown.code == 0, shown.err
    lines = json.loads(shown.out)["cost"]["lines"]
    far = [line for line in lines if line["executor"] == functions.executor]
    assert sum(line["usage"]["calls"] for line in far) == pytest.approx(functions.taken(), rel=0.1)
    assert sum(line["cost"] for line in far) > 0 or functions.executor == "openwhisk", "which has no list price"
    (local,) = (line for line in lines if line["node"] == near[0].id.partition("/")[0])
    assert (local["executor"], local["usage"]["attempts"], local["cost"]) == ("local", 3, 0)
