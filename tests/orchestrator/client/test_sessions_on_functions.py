"""Sessions whose calls run on emulated Lambda, and in part on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from operator import add, mul
from pathlib import Path

import numpy as np
import pytest
from emulators.lambda_place import LambdaPlace, lambda_place

from treadle.client import CallFailed, Session, session
from treadle.orchestrator import embedded
from treadle.orchestrator.environment.home import Home

PROFILE = """
[functions]
executor = "lambda"
slots = 1
[functions.executors.lambda]
region = "eu-test-1"
sizes = [512]
timeout = "60s"
concurrency = 2
endpoint = "{endpoint}"
files = true
"""
PATIENCE = 120


@pytest.fixture(scope="module")
def functions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LambdaPlace]:
    with lambda_place(tmp_path_factory.mktemp("lambda")) as place:
        yield place


@pytest.fixture(scope="module")
def calls(functions: LambdaPlace, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    home = Home(tmp_path_factory.mktemp("home"))
    functions.deploy(str(home.key))
    home.profiles.write_text(PROFILE.format(endpoint=functions.emulator.endpoint))
    with pytest.MonkeyPatch.context() as patch:
        for name, value in functions.emulator.credentials.items():
            patch.setenv(name, value)
        try:
            with session("far", profile="functions", home=home.path) as found:
                yield found
        finally:
            embedded.down(home)


def test_calls_and_their_results_travel_to_functions_and_back(calls: Session, functions: LambdaPlace) -> None:
    before = len(functions.emulator.taken)
    three = calls.submit(add, 1, 2)
    squares = calls.map(lambda number: number**2, range(20), chunk=5)
    assert calls.submit(sum, squares).result(PATIENCE) == sum(number**2 for number in range(20))
    assert calls.submit(mul, three, three).result(PATIENCE) == 9
    assert len(functions.emulator.taken) >= before + 3


def test_results_that_a_payload_cannot_hold_go_through_the_store(calls: Session) -> None:
    given = np.arange(1_000_000.0)
    doubled = calls.submit(lambda array: array * 2, given)
    np.testing.assert_array_equal(doubled.result(PATIENCE), given * 2)
    assert calls.submit(lambda array: float(array.sum()), doubled).result(PATIENCE) == given.sum() * 2


def test_call_names_another_executor_and_shares_its_results(calls: Session, functions: LambdaPlace) -> None:
    far = calls.submit(add, 1, 1)
    assert far.result(PATIENCE) == 2
    before = len(functions.emulator.taken)
    assert calls.with_options(executor="local").submit(mul, far, 5).result(PATIENCE) == 10
    assert len(functions.emulator.taken) == before


def test_map_reduce_exchanges_parts_between_functions(calls: Session, functions: LambdaPlace) -> None:
    before = len(functions.emulator.taken)
    numbers = list(range(60))
    by_key = calls.map_reduce(lambda n: [(n % 7, [n])], numbers, add, per="key", chunk=10, reducers=3)
    assert by_key.result(PATIENCE) == {key: numbers[key::7] for key in range(7)}
    assert calls.map_reduce(str, numbers, add, chunk=3, initial="0").result(PATIENCE) == "0" + "".join(
        map(str, numbers)
    )
    assert len(functions.emulator.taken) > before


def test_exception_in_a_function_is_raised_here(calls: Session) -> None:
    def refuse(folder: Path) -> None:
        raise FileNotFoundError(f"{folder} is elsewhere")

    error = calls.submit(refuse, Path("here")).exception(PATIENCE)
    assert isinstance(error, FileNotFoundError)
    assert "in refuse" in str(error.__cause__)


def test_call_that_needs_more_memory_than_any_size_is_refused(calls: Session) -> None:
    with pytest.raises(CallFailed):
        calls.with_options(memory=8 << 30).submit(add, 1, 1).result(PATIENCE)
