"""`map_reduce` of a session against the embedded server: the results are as in plain Python."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

import pytest
from eventually import eventually
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from treadle.client import CallTimedOut, Future, Session, attach, session
from treadle.client.environment import ClientEnvironment
from treadle.orchestrator import embedded
from treadle.orchestrator.dispatcher.ledger.ledger import Committed, LedgerReader
from treadle.orchestrator.environment.home import Home
from treadle.orchestrator.plan.plan import CALLS
from treadle.orchestrator.run_store.call_log import Called, CallLog
from treadle.primitives.encoding.references import BlockRef
from treadle.primitives.errors import DataError, UsageError
from treadle.primitives.shuffling.folds import fold_by_key
from treadle.primitives.testing.keys import simple_keys

PATIENCE = 90
CORPUS = ["the sun the sea", "The sun", "a star", "", "the star of the sea"]


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


def refuse_five(number: int) -> int:
    if number == 5:
        raise Refusal(number)
    return number


def words(text: str) -> Iterator[tuple[str, int]]:
    return ((word, 1) for word in text.lower().split())


def called(home: Path, run: str) -> list[Called]:
    """The calls of the session in its call log."""
    records = CallLog(ClientEnvironment(home=home).files(run)).read()
    return [record for record in records if isinstance(record, Called)]


def committed(home: Path, run: str, segment: str) -> list[BlockRef]:
    """The blocks of a segment of the session."""
    env = ClientEnvironment(home=home)
    files = env.files(run)
    records = LedgerReader(env.store, files.segment(CALLS), files.key).read()
    found = [record.outcome.block for record in records if isinstance(record, Committed) and record.segment == segment]
    return [block for block in found if block is not None]


# -- per all


@pytest.mark.parametrize(("items", "chunk"), [(1, "auto"), (5, 2), (40, 1), (300, 1), (2500, "auto")])
def test_results_are_combined_in_the_order_of_the_items(calls: Session, items: int, chunk: Any) -> None:
    texts = [f"{number}," for number in range(items)]
    assert calls.map_reduce(str.strip, iter(texts), add, chunk=chunk).result(PATIENCE) == "".join(texts)


def test_initial_value_comes_first_and_is_the_result_of_no_items(calls: Session) -> None:
    for count in (0, 1, 40):
        texts = list(map(str, range(count)))
        assert calls.map_reduce(str, texts, add, initial="x", chunk=2).result(PATIENCE) == "x" + "".join(texts)
    assert calls.map_reduce(str, [], add, initial=None).result(PATIENCE) is None
    with pytest.raises(UsageError, match="neither items nor an initial value"):
        calls.map_reduce(str, [], add)


def test_no_call_reads_more_than_sixteen_results(home: Path) -> None:
    with session("tree", home=home) as one:
        assert one.map_reduce(abs, range(600), add, chunk=2).result(PATIENCE) == sum(range(600))
        made = called(home, one.id)
    assert [len(record.arguments.parts) for record in made] == [300, 19, 2, 1]
    assert max(len(needs) for record in made for needs in record.needs) == 16


def test_futures_are_items_and_the_result_is_an_argument(calls: Session) -> None:
    squares = calls.map(lambda number: number**2, range(40), chunk=7)
    total = calls.map_reduce(abs, squares, add, chunk=4)
    assert calls.submit(add, total, 1).result(PATIENCE) == sum(number**2 for number in range(40)) + 1


# -- per key


@pytest.mark.parametrize("chunk", ["auto", 1, 2])
@pytest.mark.parametrize("reducers", ["auto", 1, 3])
def test_values_are_combined_by_key_in_the_order_of_first_occurrence(calls: Session, chunk: Any, reducers: Any) -> None:
    found = calls.map_reduce(words, CORPUS, add, per="key", chunk=chunk, reducers=reducers).result(PATIENCE)
    assert list(found.items()) == list(Counter(" ".join(CORPUS).lower().split()).items())


def test_dicts_are_combined_by_key_without_items_too(calls: Session) -> None:
    def count(text: str) -> Counter[str]:
        return Counter(text.split())

    assert calls.map_reduce(count, ["a b", "b"], add, per="key").result(PATIENCE) == {"a": 1, "b": 2}
    assert calls.map_reduce(count, [], add, per="key").result(PATIENCE) == {}


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.lists(st.tuples(simple_keys(), st.text("ab", max_size=2)), max_size=5), max_size=20),
    st.integers(1, 6),
    st.integers(1, 5),
)
def test_any_pairs_give_the_dict_of_a_plain_loop(
    calls: Session, items: list[list[tuple[Any, str]]], chunk: int, reducers: int
) -> None:
    expected = fold_by_key((pair for item in items for pair in item), add)
    future = calls.map_reduce(iter, items, add, per="key", chunk=chunk, reducers=reducers)
    if len(dict(expected)) < len(expected):
        assert isinstance(future.exception(PATIENCE), DataError)
    else:
        assert repr(list(future.result(PATIENCE).items())) == repr(expected)


def test_each_reducer_reads_only_its_part_of_each_task(home: Path) -> None:
    with session("parts", home=home) as one:
        numbers = range(10_000)
        found = one.map_reduce(lambda n: [(n, bytes(50))], numbers, add, per="key", chunk=2500, reducers=4)
        assert len(found.result(PATIENCE)) == 10_000
        pairs, reduced, last = called(home, one.id)
        mapped = committed(home, one.id, "_lambda_-1")
    assert len(mapped) == 4
    assert (reduced.parts_of, reduced.needs, len(reduced.arguments.parts)) == (pairs.key, (), 4)
    assert (pairs.gives, reduced.gives, last.gives) == ("nothing", "nothing", "future")
    for block in mapped:
        assert len(block.parts) == 4
        assert max(part.length for part in block.parts) < block.size / 3


def test_invalid_key_is_named(calls: Session) -> None:
    error = calls.map_reduce(lambda n: [([n], 1)], range(3), add, per="key").exception(PATIENCE)
    assert isinstance(error, DataError)
    assert "a list cannot be a key" in str(error)


# -- options, failures, cancelling


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"per": "key", "initial": 0}, "map_reduce per 'key' has other options"),
        ({"reducers": 2}, "map_reduce per 'all' has other options"),
        ({"per": "word"}, "map_reduce per 'word' has other options"),
        ({"per": "key", "reducers": 0}, "reducers is 0"),
        ({"chunk": 0}, "chunk is 0"),
    ],
)
def test_option_without_a_meaning_is_refused(calls: Session, options: Any, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        calls.map_reduce(abs, [1], add, **options)


@pytest.mark.parametrize("options", [{}, {"initial": 0}, {"per": "key"}, {"per": "key", "reducers": 3}])
@pytest.mark.parametrize("chunk", [1, 4, 100])
def test_item_that_fails_fails_the_result_with_its_exception(calls: Session, options: Any, chunk: int) -> None:
    def function(number: int) -> Any:
        value = refuse_five(number)
        return [(value % 3, value)] if "per" in options else value

    error = calls.map_reduce(function, range(40), add, chunk=chunk, **options).exception(PATIENCE)
    assert isinstance(error, Refusal)
    assert error.args == (5,)
    assert "in refuse_five" in str(error.__cause__)


def test_combine_that_fails_fails_the_result_with_its_exception(calls: Session) -> None:
    def refuse(a: int, b: int) -> int:
        raise Refusal(a, b)

    error = calls.map_reduce(abs, range(4), refuse, chunk=1).exception(PATIENCE)
    assert isinstance(error, Refusal)
    assert error.args == (0, 1)


def test_task_is_retried_as_often_as_asked_for(calls: Session, tmp_path: Path) -> None:
    def third_time(number: int) -> Iterable[tuple[str, int]]:
        count = len(list(tmp_path.glob(f"{number}-*")))
        (tmp_path / f"{number}-{count}").touch()
        if count < 2:
            raise ValueError("not yet")
        return [("sum", number)]

    options = calls.with_options(retries=2)
    found = options.map_reduce(third_time, range(4), add, per="key", chunk=1, reducers=2).result(PATIENCE)
    assert found == {"sum": 6}


def test_result_that_is_cancelled_begins_no_further_task(calls: Session, tmp_path: Path) -> None:
    def wait_for(flag: Path, number: int) -> int:
        (tmp_path / f"begun-{number}").touch()
        while not flag.exists():
            time.sleep(0.01)
        return number

    flag = tmp_path / "go"
    future = calls.map_reduce(lambda number: wait_for(flag, number), range(64), add, chunk=1)
    eventually(lambda: any(tmp_path.iterdir()))
    assert future.cancel()
    assert future.cancelled()
    flag.touch()
    assert calls.submit(add, 1, 1).result(PATIENCE) == 2
    assert len(list(tmp_path.glob("begun-*"))) < 64


def test_another_client_finds_one_future_for_each_result(home: Path) -> None:
    with session("two", home=home) as first:
        first.map_reduce(abs, range(40), add, chunk=1)
        first.map_reduce(words, CORPUS, add, per="key", chunk=1, reducers=2)
        assert first.submit(abs, -3).result(PATIENCE) == 3
        other = attach(first.id, home=home)
        found = other.futures()
        assert all(isinstance(one, Future) for one in found)
        total, counted, three = (one.result(PATIENCE) for one in found if isinstance(one, Future))
        assert (total, counted["the"], three) == (reduce(add, range(40)), 5, 3)
        other.close()


@pytest.mark.parametrize("options", [{}, {"per": "key"}, {"per": "key", "reducers": 2}])
def test_task_that_takes_too_long_has_timed_out(calls: Session, options: Any) -> None:
    def pause(seconds: float) -> list[tuple[str, int]]:
        time.sleep(seconds)
        return [("pause", 1)]

    slow = calls.with_options(timeout=0.2).map_reduce(pause, [60] + [0] * 20, add, chunk=1, **options)
    with pytest.raises(CallTimedOut, match=r"timed out: it needs the result of .*, which failed"):
        slow.result(PATIENCE)
