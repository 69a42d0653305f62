"""Calls with `reuse` find the results of equal calls, of this process or of one that was killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from operator import add
from pathlib import Path
from typing import Any

import pytest
from eventually import eventually

from treadle.client import Session, session
from treadle.client.call_content import content_digest, first_change, function_content
from treadle.orchestrator import embedded
from treadle.orchestrator.environment.home import Home

PATIENCE = 90


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("reuse") / "home"
    yield folder
    embedded.down(Home(folder))


@pytest.fixture(scope="module")
def calls(home: Path) -> Iterator[Session]:
    with session("shared", home=home, reuse=True) as found:
        yield found


@pytest.fixture
def noted(tmp_path: Path) -> Callable[..., int]:
    """A function that leaves a mark for each call, and raises for numbers below 0."""

    def note(number: int, more: int = 0) -> int:
        with (tmp_path / str(number)).open("a") as file:
            file.write("x")
        if number < 0:
            raise ValueError(number)
        return number + more

    return note


def marks(folder: Path) -> dict[str, int]:
    return {file.name: len(file.read_text()) for file in folder.iterdir()}


# -- in one session


def test_equal_call_runs_once(calls: Session, noted: Callable[..., int], tmp_path: Path) -> None:
    for _ in range(2):
        assert calls.submit(noted, 3, more=1).result(PATIENCE) == 4
        assert list(calls.map(noted, [1, 2]).results(PATIENCE)) == [1, 2]
    assert marks(tmp_path) == {"1": 1, "2": 1, "3": 1}


def test_call_with_other_arguments_or_settings_runs(calls: Session, noted: Callable[..., int], tmp_path: Path) -> None:
    found = [
        calls.submit(noted, 3),
        calls.submit(noted, 3, more=0),
        calls.with_options(retries=1).submit(noted, 3),
        calls.with_options(reuse=False).submit(noted, 3),
        calls.map(noted, [3, 3], chunk=2)[0],
    ]
    assert [one.result(PATIENCE) for one in found] == [3] * 5
    eventually(lambda: marks(tmp_path) == {"3": 6})


def test_failed_call_runs_again(calls: Session, noted: Callable[..., int], tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(ValueError, match="-1"):
            calls.submit(noted, -1).result(PATIENCE)
    assert marks(tmp_path) == {"-1": 2}


def test_call_that_needs_an_equal_call_is_equal(calls: Session, noted: Callable[..., int], tmp_path: Path) -> None:
    for _ in range(2):
        one, two = calls.submit(noted, 1), calls.submit(noted, 2)
        assert calls.submit(add, one, two).result(PATIENCE) == 3
        assert calls.submit(sum, calls.map(noted, [5, 6])).result(PATIENCE) == 11
        assert calls.map_reduce(noted, [7, 8], add).result(PATIENCE) == 15
    assert set(marks(tmp_path).values()) == {1}


# -- in another process

SCRIPT = """
import sys, time
from pathlib import Path
from treadle.client import session

{lines}factor = {factor}

def slow(number):
    with Path({folder!r}, str(number)).open("a") as file:
        file.write("x")
    time.sleep(0.05)
    return number * factor

if __name__ == "__main__":
    s = session(id={run!r}, home={home!r}, reuse=True)
    print(sum(s.map(slow, range(40)).results()), flush=True)
    s.close()
"""


def started(place: Path, home: Path, run: str, factor: int, lines: int = 0) -> subprocess.Popen[str]:
    folder = place / "marks"
    folder.mkdir(exist_ok=True)
    script = place / f"script{lines}.py"
    text = SCRIPT.format(lines="# moved\n" * lines, factor=factor, folder=str(folder), run=run, home=str(home))
    script.write_text(text)
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, str(script)], stdout=pipe, stderr=pipe, text=True)


def output(process: subprocess.Popen[str]) -> tuple[str, str]:
    shown, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, errors
    return shown, errors


def test_calls_of_a_killed_process_are_found_by_the_next(home: Path, tmp_path: Path) -> None:
    folder = tmp_path / "marks"
    with started(tmp_path, home, "study", 2) as killed:
        eventually(lambda: folder.exists() and len(list(folder.iterdir())) > 5)
        os.kill(killed.pid, signal.SIGKILL)
    time.sleep(0.1)
    assert output(started(tmp_path, home, "study", 2, lines=3)) == ("1560\n", "")  # its lines have moved
    assert marks(folder) == {str(number): 1 for number in range(40)}
    shown, errors = output(started(tmp_path, home, "study", 3))
    assert (shown, errors) == ("2340\n", "slow runs again: the global factor changed\n")
    assert set(marks(folder).values()) == {2}


# -- content


def made(source: str, name: str = "f") -> Any:
    space: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(source, f"cell-{len(source)}", "exec"), space)
    return space[name]


BASE = "rate = 2\nclass C:\n    def go(self): return rate\ndef g(n): return n + C().go()\ndef f(n): return g(n)\n"


@pytest.mark.parametrize(
    ("source", "changed"),
    [
        (BASE, ""),
        ("# a comment\n\n" + BASE, ""),
        (BASE.replace("rate = 2", "rate = 3"), "the global g"),
        (BASE.replace("return rate", "return -rate"), "the global g"),
        (BASE.replace("return g(n)", "return g(n) + 1"), "its code"),
    ],
)
def test_content_of_a_function_is_its_code_and_the_values_it_uses(source: str, changed: str) -> None:
    before, now = made(BASE), made(source)
    assert (content_digest(before) == content_digest(now)) == (not changed)
    assert first_change(function_content(before), function_content(now)) == changed


def test_captured_value_that_changed_is_named() -> None:
    source = "def make(k):\n    def f(n): return n + k\n    return f\n"
    one, two = made(source, "make")(1), made(source, "make")(2)
    assert first_change(function_content(one), function_content(two)) == "the captured k"


def test_content_does_not_depend_on_the_seed_of_hashes() -> None:
    program = (
        "from treadle.client.call_content import content_digest as d\n"
        "def f(n): return n in {'a', 'b', 'c'}\n"
        "print(d(f))"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", program], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in "123"
    }
    assert len(found) == 1
