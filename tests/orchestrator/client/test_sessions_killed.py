"""A session whose client and driver are killed in the middle of a map: another process finds every result."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError
from operator import add
from pathlib import Path

import pytest
from eventually import eventually

from treadle.client import CallTimedOut, Client, Future, Futures, attach, session
from treadle.client.environment import ClientEnvironment
from treadle.orchestrator import embedded
from treadle.orchestrator.dispatcher.ledger.ledger import Committed, LedgerReader
from treadle.orchestrator.embedded.driver_process import driver_alive
from treadle.orchestrator.environment.home import Home
from treadle.orchestrator.plan.plan import CALLS

CLIENT = Path(__file__).with_name("session_client.py")
COUNT = 60
PATIENCE = 120
SQUARES = [number * number for number in range(COUNT)]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("killed") / "home"
    yield folder
    embedded.down(Home(folder))


def killed_in_its_map(home: Path, run: str, marks: Path, fraction: float) -> None:
    """Kills the client and the driver once this fraction of the calls has begun."""
    marks.mkdir()
    arguments = [sys.executable, str(CLIENT), str(home), run, str(marks), str(COUNT)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE) as client:
        try:
            eventually(lambda: len(list(marks.iterdir())) > fraction * COUNT)
        finally:
            client.kill()
    kill_driver(home)


def kill_driver(home: Path) -> None:
    driver = embedded.running_driver(Home(home))
    assert driver is not None
    os.kill(driver.pid, signal.SIGKILL)
    while driver_alive(Home(home)):
        time.sleep(0.01)


def committed(home: Path, run: str) -> set[int]:
    """The calls of the map on record."""
    env = ClientEnvironment(home=home)
    files = env.files(run)
    records = LedgerReader(env.store, files.segment(CALLS), files.key).read()
    found = [record for record in records if isinstance(record, Committed) and record.segment == "mark-1"]
    assert len({record.outcome.partition for record in found}) == len(found), "a call was committed twice"
    return {record.outcome.partition for record in found}


def starts(marks: Path, number: int) -> int:
    return len((marks / str(number)).read_text().splitlines())


def check_kill(home: Path, tmp_path: Path, run: str, fraction: float) -> None:
    marks = tmp_path / run
    killed_in_its_map(home, run, marks, fraction)
    before = committed(home, run)
    assert 0 < len(before) < COUNT
    found = attach(run, home=home)
    squares, total = found.futures()
    assert isinstance(squares, Futures)
    assert list(squares.results(PATIENCE)) == SQUARES
    assert isinstance(total, Future)
    assert total.result(PATIENCE) == sum(SQUARES)
    found.end()
    assert {starts(marks, number) for number in before} == {1}
    assert committed(home, run) == set(range(COUNT))


def test_session_whose_client_and_driver_are_killed_has_every_result(home: Path, tmp_path: Path) -> None:
    check_kill(home, tmp_path, "once", 0.4)
    with Client(home=home) as client:
        assert client.attach("once").wait().show().state == "succeeded"


def test_calls_that_were_cancelled_or_failed_stay_so_after_a_takeover(home: Path, tmp_path: Path) -> None:
    def mark_and_wait(mark: str, flag: str) -> str:
        with (tmp_path / mark).open("a") as file:
            file.write("begun\n")
        while not (tmp_path / flag).exists():
            time.sleep(0.01)
        return mark

    with session("takeover", home=home) as s:
        failed = s.with_options(timeout=0.2).submit(mark_and_wait, "late", "never")
        assert isinstance(failed.exception(PATIENCE), CallTimedOut)
        calls = [s.submit(mark_and_wait, f"call-{number}", "flag") for number in range(32)]
        eventually(calls[0].running)
        last = calls.pop()
        assert last.cancel()
        (tmp_path / "flag").touch()
        kill_driver(home)
        assert [call.result(PATIENCE) for call in calls] == [f"call-{number}" for number in range(31)]
    assert not (tmp_path / "call-31").exists()
    assert (tmp_path / "late").read_text() == "begun\n"
    again = attach(s.id, home=home)
    assert isinstance(again[failed.id].exception(PATIENCE), CallTimedOut)
    with pytest.raises(CancelledError):
        again[last.id].result(PATIENCE)


def test_call_that_a_dead_driver_began_is_not_cancelled(home: Path, tmp_path: Path) -> None:
    def mark_and_wait() -> str:
        (tmp_path / "mark").touch()
        while not (tmp_path / "flag").exists():
            time.sleep(0.01)
        return "done"

    with session("begun", home=home) as s:
        call = s.submit(mark_and_wait)
        eventually(call.running)
        kill_driver(home)
        assert not call.cancel()
        (tmp_path / "flag").touch()
        assert call.result(PATIENCE) == "done"
        assert attach(s.id, home=home)[call.id].result(PATIENCE) == "done"


def test_map_reduce_goes_on_after_its_driver_is_killed(home: Path, tmp_path: Path) -> None:
    def mark_and_pair(number: int) -> list[tuple[int, int]]:
        with (tmp_path / str(number)).open("a") as file:
            file.write("begun\n")
        time.sleep(0.02)
        return [(number % 3, number)]

    with session("reduced", home=home) as s:
        counts = s.map_reduce(mark_and_pair, range(COUNT), add, per="key", chunk=2, reducers=3)
        eventually(lambda: len(list(tmp_path.iterdir())) > COUNT / 3)
        kill_driver(home)
        assert counts.result(PATIENCE) == {key: sum(range(key, COUNT, 3)) for key in range(3)}
    assert sum(starts(tmp_path, number) for number in range(COUNT)) < 1.5 * COUNT


@pytest.mark.chaos
def test_session_is_killed_at_twenty_random_moments(home: Path, tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")  # noqa: T201  # repeats a failure
    moments = random.Random(seed)
    for number in range(20):
        check_kill(home, tmp_path, f"kill-{number}", moments.uniform(0.05, 0.9))
