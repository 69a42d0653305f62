"""Sessions against the embedded server: calls, futures, errors, and other clients."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
import time
from collections.abc import Iterable, Iterator
from itertools import pairwise
from operator import add, mul
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from eventually import eventually
from orchestrator.commands import Terminal

from treadle.client import (
    CallFailed,
    CallOutOfMemory,
    CallTimedOut,
    Client,
    Future,
    Futures,
    Session,
    SessionEnded,
    WorkerTraceback,
    attach,
    session,
)
from treadle.dsl import Workflow, items
from treadle.orchestrator import embedded
from treadle.orchestrator.dispatcher.ledger.ledger import LedgerReader, Record
from treadle.orchestrator.environment.home import Home
from treadle.orchestrator.planner import placement
from treadle.orchestrator.run_store.call_log import CallLog, CallRecord
from treadle.orchestrator.run_store.chain_watch import ChainWatch
from treadle.primitives.errors import StoreError, UsageError

PATIENCE = 90


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("sessions") / "home"
    yield folder
    embedded.down(Home(folder))


@pytest.fixture(scope="module")
def calls(home: Path) -> Iterator[Session]:
    with session("shared", home=home) as found:
        yield found


class Refusal(Exception):
    """An exception of the test's own."""

    def __init__(self, number: int, reason: str) -> None:
        super().__init__(number, reason)
        self.number = number


def refuse(number: int) -> int:
    raise Refusal(number, "odd")


def refuse_odd(number: int) -> int:
    return refuse(number) if number % 2 else number


def span_of(seconds: float) -> tuple[float, float]:
    """When the call began, and when it ended."""
    began = time.time()
    time.sleep(seconds)
    return began, time.time()


def wait_for(flag: Path, value: int) -> int:
    while not flag.exists():
        time.sleep(0.01)
    return value


# -- calls


def test_result_is_that_of_the_function(calls: Session) -> None:
    assert calls.submit(divmod, 17, 5).result(PATIENCE) == (3, 2)
    assert calls.submit(dict, one=1).result(PATIENCE) == {"one": 1}


def test_closure_and_its_argument_are_taken_as_they_are_now(calls: Session) -> None:
    step, given = 3, [1, 2]
    future = calls.submit(lambda values: [value + step for value in values], given)
    given.append(9)
    step = 100
    assert future.result(PATIENCE) == [4, 5]


@pytest.mark.parametrize("chunk", ["auto", 1, 3, 100])
def test_map_keeps_the_order_of_its_items(calls: Session, chunk: Any) -> None:
    futures = calls.map(add, range(10), range(0, 100, 10), chunk=chunk)
    assert len(futures) == 10
    assert list(futures.results(PATIENCE)) == [11 * number for number in range(10)]
    assert futures[-1].result(PATIENCE) == 99
    assert [one.result(PATIENCE) for one in futures[2:4]] == [22, 33]


def test_map_of_nothing_is_empty(calls: Session) -> None:
    assert list(calls.map(add, [], []).results()) == []


def test_starmap_takes_the_members_of_each_item_as_arguments(calls: Session) -> None:
    pairs = ((number, number + 1) for number in range(4))
    assert list(calls.starmap(mul, pairs).results(PATIENCE)) == [0, 2, 6, 12]


def test_results_of_a_chunk_come_in_order_until_one_failed(calls: Session) -> None:
    results = calls.map(refuse_odd, [0, 2, 4, 5, 6], chunk=4).results(PATIENCE)
    assert [next(results) for _ in range(3)] == [0, 2, 4]
    with pytest.raises(Refusal) as refused:
        next(results)
    assert refused.value.number == 5
    assert "in refuse_odd" in str(refused.value.__cause__)


def test_futures_are_arguments_at_any_depth(calls: Session) -> None:
    two = calls.submit(add, 1, 1)
    squares = calls.map(mul, range(5), range(5), chunk=2)
    assert calls.submit(add, two, two).result(PATIENCE) == 4
    assert calls.submit(sum, squares).result(PATIENCE) == 30
    assert calls.submit(lambda found: found["a"][0] + found["b"], {"a": [two], "b": squares[3]}).result(PATIENCE) == 11


def test_array_comes_back_as_a_read_only_view(calls: Session) -> None:
    given = np.arange(100_000.0)
    future = calls.submit(lambda array: (array.flags.writeable, array * 2), given)
    was_writeable, doubled = calls.submit(lambda pair: pair, future).result(PATIENCE)
    np.testing.assert_array_equal(doubled, given * 2)
    assert (was_writeable, doubled.flags.writeable) == (False, False)


def test_completed_futures_come_as_they_end(calls: Session, tmp_path: Path) -> None:
    flag = tmp_path / "go"
    late, soon = calls.submit(wait_for, flag, 1), calls.submit(wait_for, tmp_path, 2)
    found = concurrent.futures.as_completed([late, soon], PATIENCE)
    assert next(found) is soon
    flag.touch()
    assert next(found) is late


async def test_future_is_awaited_on_an_event_loop(calls: Session) -> None:
    futures = [asyncio.wrap_future(calls.submit(add, number, 1)) for number in range(3)]
    assert await asyncio.wait_for(asyncio.gather(*futures), PATIENCE) == [1, 2, 3]


# -- failures


def test_exception_keeps_its_class_and_has_the_workers_traceback_as_its_cause(calls: Session) -> None:
    with pytest.raises(Refusal) as caught:
        calls.submit(refuse, 3).result(PATIENCE)
    assert caught.value.number == 3
    assert "in refuse" in str(caught.value.__cause__)


def test_failed_call_of_a_map_leaves_the_others(calls: Session) -> None:
    futures = calls.map(refuse_odd, range(12), chunk=4)
    assert [one.result(PATIENCE) for one in futures[::2]] == list(range(0, 12, 2))
    assert {type(one.exception(PATIENCE)) for one in futures[1::2]} == {Refusal}


def test_call_that_needs_a_failed_call_has_its_exception(calls: Session) -> None:
    error = calls.submit(add, calls.submit(refuse, 1), 1).exception(PATIENCE)
    assert isinstance(error, Refusal)
    assert "in refuse" in str(error.__cause__)


def test_exception_is_retried_as_often_as_asked_for(calls: Session, tmp_path: Path) -> None:
    def third_time(folder: Path) -> int:
        count = len(list(folder.iterdir()))
        (folder / str(count)).touch()
        if count < 2:
            raise ValueError("not yet")
        return count

    assert calls.with_options(retries=2).submit(third_time, tmp_path).result(PATIENCE) == 2


def test_call_that_takes_too_long_has_timed_out(calls: Session) -> None:
    with pytest.raises(CallTimedOut, match=r"timed out: .*\n  Give its calls a longer `timeout`"):
        calls.with_options(timeout=0.2).submit(time.sleep, 60).result(PATIENCE)


def test_function_without_memory_says_how_to_get_more(calls: Session) -> None:
    def starve() -> None:
        raise MemoryError

    with pytest.raises(CallOutOfMemory, match="out of memory\n  Give its calls more `memory`, or smaller arguments"):
        calls.submit(starve).result(PATIENCE)


@pytest.mark.parametrize("given", [threading.Lock(), iter([1])])
def test_argument_that_cannot_be_pickled_is_refused_at_once(calls: Session, given: Any) -> None:
    if not isinstance(given, Iterator):
        with pytest.raises(UsageError, match="the arguments cannot be pickled: TypeError"):
            calls.submit(id, given)
    with pytest.raises(UsageError, match="cannot be taken by value"):
        calls.submit(lambda: (given, threading.Lock(), calls))


def test_result_that_cannot_be_pickled_is_an_error_that_says_so(calls: Session) -> None:
    error = calls.submit(threading.Lock).exception(PATIENCE)
    assert "the result of type lock cannot be pickled" in str(error)


class Odd(Exception):
    """Its pickle lacks an argument of the constructor."""

    def __init__(self, number: int, _reason: str) -> None:
        super().__init__(number)


class OddResult:
    def __reduce__(self) -> tuple[Any, ...]:
        return int, ("x",)


def test_exception_that_cannot_be_unpickled_is_an_error_that_says_so(calls: Session) -> None:
    def raises() -> None:
        raise Odd(1, "")

    error = calls.submit(raises).exception(PATIENCE)
    assert "the Odd(1) cannot be pickled: TypeError" in str(error)
    assert isinstance(error and error.__cause__, WorkerTraceback)


def test_result_that_cannot_be_unpickled_fails_its_call_alone(calls: Session) -> None:
    with pytest.raises(CallFailed, match="its result cannot be rebuilt here: ValueError"):
        calls.submit(OddResult).result(PATIENCE)
    assert calls.submit(add, 1, 2).result(PATIENCE) == 3


def test_worker_that_dies_again_and_again_fails_the_call(calls: Session) -> None:
    import os

    with pytest.raises(CallFailed, match="poison"):
        calls.submit(os._exit, 3).result(PATIENCE)


def test_executor_that_the_profile_lacks_is_refused_before_a_call(calls: Session) -> None:
    with pytest.raises(UsageError, match=r"there is no executor 'moon'.*\n.*The profile has: local"):
        calls.with_options(executor="moon")


def test_executor_that_the_driver_lacks_fails_the_call_and_not_the_session(
    calls: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placement, "check_place", lambda *_: None)
    with pytest.raises(CallFailed, match="no executor 'moon'"):
        calls.with_options(executor="moon").submit(add, 1, 1).result(PATIENCE)
    assert calls.submit(add, 1, 1).result(PATIENCE) == 2


def test_session_on_an_unknown_executor_is_refused(home: Path) -> None:
    with pytest.raises(UsageError, match="there is no executor 'moon'"):
        session(executor="moon", home=home)


def test_option_below_zero_is_refused(calls: Session) -> None:
    with pytest.raises(UsageError, match="at least 0"):
        calls.with_options(retries=-1)
    with pytest.raises(UsageError, match="chunk is 0"):
        calls.map(abs, [1], chunk=0)


def test_future_of_another_session_is_refused_as_an_argument(calls: Session, home: Path) -> None:
    with session("other", home=home) as other, pytest.raises(UsageError, match="a future of another session"):
        other.submit(add, calls.submit(add, 1, 1), 1)


def test_passing_error_of_the_store_delays_a_call_only(calls: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    write, left = CallLog.write, [StoreError("the store is away", "Try again.", retryable=True)]

    def away_once(log: CallLog, records: Iterable[CallRecord]) -> list[CallRecord]:
        if left:
            raise left.pop()
        return write(log, records)

    monkeypatch.setattr(CallLog, "write", away_once)
    assert calls.submit(add, 1, 1).result(PATIENCE) == 2
    assert not left


# -- cancelling


def test_call_that_has_not_begun_can_be_cancelled(calls: Session, tmp_path: Path) -> None:
    flag = tmp_path / "go"
    running = [calls.submit(wait_for, flag, number) for number in range(64)]
    last = running[-1]
    after = calls.submit(add, last, 1)
    eventually(running[0].running)
    assert last.cancel()
    assert last.cancelled()
    assert not running[0].cancel()
    flag.touch()
    assert [one.result(PATIENCE) for one in running[:-1]] == list(range(63))
    with pytest.raises(CallFailed, match="which failed"):
        after.result(PATIENCE)


def test_paused_session_lets_running_calls_end_and_begins_no_other(home: Path, tmp_path: Path) -> None:
    def begun_then_wait(mark: Path, flag: Path) -> int:
        with mark.open("a") as file:
            file.write("begun\n")
        return wait_for(flag, 1)

    with session("paused", home=home) as one, Terminal(tmp_path, home, {}) as terminal, Client(home=home) as client:
        marks, flags = [tmp_path / "a", tmp_path / "b"], [tmp_path / "flag-a", tmp_path / "flag-b"]
        first = one.submit(begun_then_wait, marks[0], flags[0])
        second = one.with_options(retries=1).submit(begun_then_wait, marks[1], flags[1])
        eventually(lambda: all(mark.exists() for mark in marks))
        assert terminal.run("pause", one.id).code == 0
        flags[0].touch()
        assert first.result(PATIENCE) == 1
        flags[1].touch()
        assert second.result(PATIENCE) == 1
        eventually(lambda: client.show(one.id).stages[0].state != "running")
        third = one.submit(add, 1, 1)
        assert third.id == "add-3/0"
        assert not third.running()
        assert terminal.run("unpause", one.id).code == 0
        assert third.result(PATIENCE) == 2
    assert [mark.read_text() for mark in marks] == ["begun\n", "begun\n"]


# -- other clients


def test_another_client_finds_the_calls_and_adds_some(home: Path) -> None:
    with session("two", home=home) as first:
        single, many = first.submit(add, 1, 2), first.map(abs, [-1, -2])
        assert single.result(PATIENCE) == 3
        name = many[1].id
        other = attach(first.id, home=home)
        found = other.futures()
        assert isinstance(found[0], Future)
        assert isinstance(found[1], Futures)
        assert found[0].result(PATIENCE) == 3
        assert list(found[1].results(PATIENCE)) == [1, 2]
        assert other[name].result(PATIENCE) == 2
        assert other.submit(add, found[0], 4).result(PATIENCE) == 7
        other.close()


def test_show_has_a_row_for_each_function(home: Path, tmp_path: Path) -> None:
    with session("rows", home=home) as s, Client(home=home) as client:
        assert list(s.map(abs, [-1, -2, -3]).results(PATIENCE)) == [1, 2, 3]
        held = s.submit(wait_for, tmp_path / "flag", 1)
        late = s.with_options(timeout=0.1).submit(time.sleep, 60)
        assert late.exception(PATIENCE) is not None
        eventually(held.running)

        def rows() -> list[tuple[object, ...]]:
            return [(one.node, one.state, one.committed, one.failed, one.partitions) for one in run.show().stages]

        run = client.attach(s.id)
        others = [("abs-1", "done", 3, 0, 3), ("sleep-3", "done", 0, 1, 1)]
        assert rows() == [others[0], ("wait_for-2", "running", 0, 0, 1), others[1]]
        (tmp_path / "flag").touch()
    run.wait()
    assert rows() == [others[0], ("wait_for-2", "done", 1, 0, 1), others[1]]


def test_results_of_an_ended_session_are_found_and_no_call_is_taken(home: Path) -> None:
    with session("ended", home=home) as first:
        first.submit(add, 1, 2)
    with Client(home=home) as client:
        assert client.attach(first.id).wait().show().state == "succeeded"
    later = attach(first.id, home=home)
    assert [one.result(PATIENCE) for one in later.futures() if isinstance(one, Future)] == [3]
    with pytest.raises(SessionEnded, match="the session has ended"):
        later.submit(add, 1, 2).result(PATIENCE)


def test_results_can_be_read_after_the_block_of_the_session(home: Path) -> None:
    with session("read", home=home) as s:
        one, many = s.submit(add, 1, 2), s.map(abs, [-1, 2, -3], chunk=2)
    assert (one.result(PATIENCE), many[2].result(PATIENCE)) == (3, 3)
    assert list(many.results(PATIENCE)) == [1, 2, 3]
    assert s[many[0].id].result(PATIENCE) == 1
    s.end()


def test_closed_session_takes_no_calls_and_says_where_results_are(home: Path, tmp_path: Path) -> None:
    with session("closed", home=home, detach=True) as s:
        waiting = s.map(wait_for, [tmp_path / "flag"], [1])
        first = waiting[0]
    for future in (first, waiting[0]):
        with pytest.raises(SessionEnded, match="closed here"):
            future.result(PATIENCE)
    with pytest.raises(SessionEnded, match="closed here"):
        s.submit(add, 1, 2)
    assert not waiting[0].cancel()
    (tmp_path / "flag").touch()
    with attach(s.id, home=home) as again:
        assert again.futures()[0][0].result(PATIENCE) == 1  # type: ignore[index]


def test_session_with_the_id_of_a_session_continues_it(home: Path) -> None:
    with session("mine", id="mine-1", home=home, detach=True) as first:
        first.submit(add, 1, 2)
        first.close()
    again = session("mine", id="mine-1", home=home)
    (found,) = again.futures()
    assert isinstance(found, Future)
    assert found.result(PATIENCE) == 3
    again.end()


def test_id_of_a_workflows_run_is_refused(home: Path) -> None:
    workflow = Workflow("plain")
    workflow.map("done", items([1, -2]), uses=abs)
    with Client(home=home) as client:
        client.run(workflow, id="plain-1")
    with pytest.raises(UsageError, match="plain-1 is the run of a workflow"):
        attach("plain-1", home=home)
    with pytest.raises(UsageError, match="plain-1 is the run of a workflow"):
        session(id="plain-1", home=home)


# -- as an executor


def test_executor_maps_waits_and_shuts_down(calls: Session) -> None:
    with calls.executor() as executor:
        assert list(executor.map(add, range(3), range(3))) == [0, 2, 4]
        done, left = concurrent.futures.wait([executor.submit(add, 1, 1)], timeout=PATIENCE)
        assert (len(done), len(left)) == (1, 0)
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(add, 1, 1)


def test_calls_of_a_function_run_one_at_a_time_when_asked(calls: Session) -> None:
    one_by_one = calls.with_options(max_concurrency=1)
    spans = sorted(one_by_one.map(span_of, [0.05] * 6, chunk=1).results(PATIENCE))
    with calls.executor(max_workers=1) as executor:
        more = sorted(executor.map(span_of, [0.05] * 6))
    for found in (spans, more):
        assert all(end <= begin for (_, end), (begin, _) in pairwise(found))


@pytest.mark.parametrize("workers", [0, -1])
def test_executor_without_workers_is_refused_as_by_the_standard_library(calls: Session, workers: int) -> None:
    with pytest.raises(ValueError, match="max_workers must be greater than 0"):
        calls.executor(max_workers=workers)


def test_print_of_a_call_is_in_its_log(home: Path) -> None:
    with session("logs", home=home) as one:
        future = one.submit(print, "hello")
        assert future.result(PATIENCE) is None
        eventually(lambda: any("hello" in record.log for record in future.logs()))


@pytest.mark.parametrize("announced", [True, False])
def test_the_end_of_a_call_is_found_with_and_without_announcements(
    home: Path, announced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[str] = []
    """Folders of the ledgers: other sessions of this process may look, too."""
    read = LedgerReader.read

    def counted(reader: LedgerReader) -> list[Record]:
        looks.append(str(reader.folder))
        return read(reader)

    monkeypatch.setattr(LedgerReader, "read", counted)
    if not announced:
        monkeypatch.setattr(ChainWatch, "announces", lambda _: False)
    with session("looks", home=home) as calls:
        assert calls.submit(add, 1, 2).result(PATIENCE) == 3
        looks.clear()
        began = time.monotonic()
        assert calls.submit(time.sleep, 0.8).result(PATIENCE) is None
        rate = sum(calls.id in folder for folder in looks) / (time.monotonic() - began)
    assert not announced or rate < 120, "it looks fifty times a second, and at each of a few objects"
