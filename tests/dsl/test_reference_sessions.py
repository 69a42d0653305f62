"""The calls of a session in the reference interpreter."""

from __future__ import annotations

from concurrent.futures import CancelledError
from operator import add
from typing import Any

import pytest

from treadle.dsl.reference.sessions import CallNotRun, ReferenceSession


def refuse(text: str) -> int:
    raise ValueError(text)


def test_call_stands_for_its_result_at_any_depth() -> None:
    session = ReferenceSession()
    two = session.submit(add, 1, 1)
    parts = session.map(abs, [-1, -2])
    found = session.submit(lambda *given, **more: (given, more), [(two, {"a": two})], last=parts)
    assert found.result() == (([(2, {"a": 2})],), {"last": [1, 2]})


def test_argument_and_result_are_copies() -> None:
    session, values = ReferenceSession(), [1]
    made = session.submit(lambda given: given, values)
    values.append(2)
    made.result().append(3)
    assert made.result() == [1]
    assert session.submit(lambda given: given.append(4), made).result() is None
    assert made.result() == [1]


def test_call_that_needs_a_failed_one_has_the_first_error_and_does_not_run() -> None:
    session, ran = ReferenceSession(), list[Any]()
    one, two = session.map(refuse, ["one", "two"])
    with pytest.raises(ValueError, match=r"^one$"):
        session.submit(lambda *given: ran.append(given), 0, [one], two).result()
    assert ran == []


def test_cancelled_call_cuts_off_all_that_need_it() -> None:
    session = ReferenceSession()
    cancelled = session.cancelled()
    needs_it = session.submit(add, cancelled, session.submit(refuse, "no"))
    with pytest.raises(CancelledError):
        cancelled.result()
    for one in (needs_it, session.submit(abs, needs_it)):
        with pytest.raises(CallNotRun):
            one.result()


def test_map_reduce_combines_in_the_order_of_the_items() -> None:
    session = ReferenceSession()
    assert session.map_reduce(str, range(3), add).result() == "012"
    assert session.map_reduce(str, [], add, initial="x").result() == "x"
    by_key = session.map_reduce(lambda word: {word[0]: word}, ["ab", "ba", "ac"], add, per="key").result()
    assert list(by_key.items()) == [("a", "abac"), ("b", "ba")]
    with pytest.raises(ValueError, match=r"^b$"):
        session.map_reduce(lambda text: refuse(text) if text > "a" else text, "abc", add).result()
