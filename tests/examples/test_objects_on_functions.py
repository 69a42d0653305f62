"""Shared objects of sessions: the same programs with calls on this machine and on emulated Lambda and OpenWhisk."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np
import pytest
from examples.test_session_example import printed
from orchestrator.client.test_sessions_on_functions import Functions, calls, functions, home

from treadle.client import Session, session
from treadle.orchestrator import embedded
from treadle.orchestrator.environment.home import Home
from treadle.primitives.errors import UsageError
from treadle.primitives.objects import Counter, Keepers, Lock, Map

__all__ = ["calls", "functions", "home"]
PATIENCE = 120
HERE = "127.0.0.1"


def visit(number: int, visits: Any, pages: Any) -> int:
    pages.merge(f"page {number % 3}", 1, int.__add__)
    found: int = visits.increment()
    return found


def count(calls: Session, keepers: Keepers) -> None:
    """30 calls change two objects, some of them at the same time."""
    visits, pages = keepers.object("visits", Counter), keepers.object("pages", Map)
    found = calls.starmap(visit, [(number, visits, pages) for number in range(30)], chunk=5)
    assert sorted(found.results(PATIENCE)) == list(range(1, 31))
    assert pages.all() == {"page 0": 10, "page 1": 10, "page 2": 10}


@pytest.mark.parametrize("settings", [{}, {"replicas": 2}, {"durability": "store"}], ids=str)
def test_functions_count_at_keepers_of_their_session(calls: Session, home: Home, settings: dict[str, Any]) -> None:
    assert calls.slots
    with session("counts", profile="functions", home=home.path) as another:
        count(another, another.keepers(host=HERE, shards=2, **settings))


@pytest.mark.parametrize("durability", ["memory", "store"])
def test_functions_go_on_with_keepers_that_were_started_again(
    calls: Session, home: Home, durability: Literal["memory", "store"]
) -> None:
    assert calls.slots
    found = []
    with session("again", profile="functions", home=home.path) as another:
        for _ in range(3):
            with another.keepers(host=HERE, durability=durability) as keepers:
                visits = keepers.object("visits", Counter)
                found.append(another.submit(visits.increment).result(PATIENCE))
    assert found == ([1, 2, 3] if durability == "store" else [1, 1, 1])


def test_keepers_that_functions_do_not_reach_are_refused(calls: Session) -> None:
    with pytest.raises(UsageError, match="would not reach keepers"):
        calls.keepers()


def test_function_waits_for_a_lock_of_this_process(calls: Session) -> None:
    def take(lock: Any) -> int:
        with lock as token:
            return int(token)

    with calls.keepers(host=HERE) as keepers:
        lock = keepers.object("lock", Lock)
        with lock as mine:
            waiting = calls.submit(take, lock)
            near = calls.with_options(executor="local").submit(take, lock)
            assert not waiting.done()
        assert min(waiting.result(PATIENCE), near.result(PATIENCE)) > mine


@pytest.mark.parametrize(
    "name", ["kmeans", *(pytest.param(name, marks=pytest.mark.chaos) for name in ("pi", "logistic"))]
)
def test_examples_print_the_same_where_functions_run_them(name: str, functions: Functions, home: Home) -> None:
    home.profiles.write_text(functions.profile)
    before = functions.taken()
    remote = {**functions.environment, "TREADLE_PROFILE": "functions", "TREADLE_PEERS": f"tls://{HERE}:0"}
    embedded.down(home)  # its driver does not know the address
    try:
        _check(name, printed(home.path, f"objects/{name}.py", environ=remote))
    finally:
        embedded.down(home)
    assert functions.taken() > before


def _check(name: str, output: str) -> None:
    numbers = np.array([float(found) for found in re.findall(r"-?\d+\.?\d*", output)])
    expected: Mapping[str, Callable[[], bool]] = {
        "pi": lambda: abs(numbers[0] - np.pi) < 0.01,
        "kmeans": lambda: np.allclose(numbers, [0, 0, 0, 10, 10, 0], atol=0.1),
        "logistic": lambda: numbers[0] > 85,
    }
    assert expected[name](), output
