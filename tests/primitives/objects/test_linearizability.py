"""The checker of histories, on histories whose answer is known."""

from __future__ import annotations

from typing import Any

from primitives.objects.linearizability import NOTHING, Operation, linearizable
from primitives.objects.scenario import MODELS


def verdict(*operations: tuple[str, str, tuple[Any, ...], float, float | None, Any]) -> str | None:
    found = [
        Operation(name, method, args, begin, 0, end, result) for name, method, args, begin, end, result in operations
    ]
    return linearizable(found, MODELS)


def test_calls_one_after_another_are_linearizable() -> None:
    assert verdict(("number", "add", (2,), 0, 1, 2), ("number", "get", (), 2, 3, 2)) is None


def test_an_old_read_is_found() -> None:
    assert verdict(("number", "add", (2,), 0, 1, 2), ("number", "get", (), 2, 3, 0)) == "number"


def test_a_read_during_a_call_may_return_either_value() -> None:
    for value in (0, 2):
        assert verdict(("number", "add", (2,), 0, 5, 2), ("number", "get", (), 2, 3, value)) is None


def test_two_reads_during_a_call_may_not_go_back() -> None:
    add = ("number", "add", (2,), 0, 9, 2)
    assert verdict(add, ("number", "get", (), 1, 2, 2), ("number", "get", (), 3, 4, 0)) == "number"


def test_a_call_without_answer_may_have_taken_effect_or_not() -> None:
    for value in (0, 2):
        assert verdict(("number", "add", (2,), 0, None, None), ("number", "get", (), 2, 3, value)) is None


def test_a_call_that_ran_twice_is_found() -> None:
    assert verdict(("number", "add", (2,), 0, 1, 2), ("number", "add", (1,), 2, 3, 5)) == "number"


def test_a_refused_call_that_took_effect_is_found() -> None:
    put = ("queue", "put", ("a",), 0, 1, NOTHING)
    assert verdict(put, ("queue", "get", (), 2, 3, "a")) == "queue"


def test_a_waiting_call_goes_on_after_the_call_that_lets_it() -> None:
    assert verdict(("queue", "get", (), 0, 5, "a"), ("queue", "put", ("a",), 2, 3, None)) is None
    assert verdict(("queue", "get", (), 0, 1, "a"), ("queue", "put", ("a",), 2, 3, None)) == "queue"


def test_objects_are_checked_independently() -> None:
    assert verdict(("cell", "set", (1,), 0, 1, None), ("number", "get", (), 2, 3, 0)) is None
