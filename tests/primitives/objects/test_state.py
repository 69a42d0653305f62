"""The replicated state: sessions, guards, errors, snapshots and digests."""

from __future__ import annotations

import random
import threading
from typing import Any

import pytest
from primitives.objects.local import Local

from treadle.primitives.errors import UsageError
from treadle.primitives.objects import messages as m
from treadle.primitives.objects.catalog import Lock, Queue
from treadle.primitives.objects.definitions import check_shared, current, public_methods, read, shared, then, when
from treadle.primitives.objects.state import State
from treadle.primitives.objects.values import digest, dumps

WAITS = Local.WAITS


@shared
class Odd:
    """Methods that go wrong, or look at their call."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def fail(self) -> None:
        self.seen.append(1)
        raise LookupError("there is nothing")

    def put(self, value: int) -> None:
        self.seen.append(value)

    def clear(self) -> None:
        self.seen.clear()

    def look(self) -> tuple[int, float, float]:
        return current().session, current().time, current().random().random()

    @when(lambda self, value: self.seen[value])
    def guarded(self, value: int) -> int:
        return value

    def forever(self) -> Any:
        return then("forever")

    @read
    def count(self) -> int:
        return len(self.seen)

    def _secret(self) -> None:
        raise AssertionError


def test_an_error_of_a_method_is_raised_with_its_traceback() -> None:
    it = Local(Odd)
    with pytest.raises(LookupError, match="there is nothing") as raised:
        it.call(1, "fail")
    assert "in fail" in str(raised.value.__cause__)
    assert it.call(1, "count") == 1


def test_an_error_of_a_guard_is_raised() -> None:
    it = Local(Odd)
    with pytest.raises(IndexError):
        it.call(1, "guarded", 3)


def test_a_guard_that_raises_later_ends_the_wait() -> None:
    it = Local(Odd)
    two = it.session()
    it.call(1, "put", 0)
    assert it.call(two, "guarded", 0) is WAITS
    it.call(1, "clear")
    with pytest.raises(IndexError):
        it.value(two)


def test_a_call_that_never_ends_is_ended() -> None:
    with pytest.raises(RecursionError):
        Local(Odd).call(1, "forever")


@pytest.mark.parametrize("name", ["missing", "_secret", "__init__", "seen"])
def test_only_public_methods_can_be_called(name: str) -> None:
    with pytest.raises(AttributeError):
        Local(Odd).call(1, name)


def test_a_call_sees_its_session_time_and_seed() -> None:
    it = Local(Odd)
    session, time, number = it.call(1, "look")
    assert (session, time) == (1, it.time)
    assert number == random.Random(it.state.index).random()


def test_a_new_call_of_a_session_withdraws_its_waiting_call() -> None:
    it = Local(Lock)
    two = it.session()
    it.call(1, "acquire")
    it.call(two, "acquire")
    assert it.call(two, "locked") is True
    it.call(1, "release")
    assert it.call(1, "locked") is False


def test_a_repeated_call_is_known_until_the_next_one() -> None:
    it = Local(Odd)
    it.call(1, "count")
    answer = it.state.known(1, 2)
    assert isinstance(answer, m.MethodAnswer)
    assert answer.kind == m.VALUE
    assert [it.state.known(1, sequence) for sequence in (1, 3)] == [False, None]


def test_an_unknown_session_is_answered_with_expired() -> None:
    answer = Local(Odd).state.known(77, 1)
    assert isinstance(answer, m.MethodAnswer)
    assert answer.kind == m.EXPIRED


def test_calls_that_wait_for_a_removed_object_are_answered() -> None:
    it = Local(Queue)
    two = it.session()
    it.call(two, "get")
    assert it.call(1, m.DROP) is True
    assert it.results[two].kind == m.MISSING


def test_a_restored_snapshot_goes_on_as_the_state_does() -> None:
    it = Local(Queue, 1)
    two = it.session()
    it.call(two, "get")
    it.state = State.restored(it.state.snapshot())
    it.call(1, "put", "a")
    assert it.value(two) == "a"


def test_an_object_that_exists_is_not_created_again() -> None:
    it = Local(Queue)
    it.call(1, "put", "a")
    it.send(1, m.CREATE, dumps((Queue, (), {})))
    assert it.call(1, "size") == 1
    it.send(1, m.CREATE, dumps((Lock, (), {})))
    with pytest.raises(TypeError, match="is a Queue"):
        it.value(1)


def test_an_object_whose_state_cannot_be_pickled_is_refused() -> None:
    @shared
    class OpenSession:
        def __init__(self) -> None:
            self.lock = threading.Lock()

    with pytest.raises(TypeError, match="pickle"):
        Local(OpenSession)


def test_only_marked_classes_are_shared() -> None:
    with pytest.raises(UsageError, match="@shared"):
        check_shared(dict)
    with pytest.raises(UsageError, match="look-up"):
        shared(type("Proxy", (), {"__getattr__": lambda self, name: name}))
    assert public_methods(Odd) == ("clear", "count", "fail", "forever", "guarded", "look", "put")


def test_digest_depends_on_values_only() -> None:
    one, other = "".join(["x", "y"]), "".join(["x", "y"])
    assert digest([one, one]) == digest([one, other])
    assert digest({"b", "a", "c"}) == digest(set("cab"))
    assert list({0, 8}) != list({8, 0})
    assert digest({0, 8}) == digest({8, 0})
    assert digest({1: {2}}) != digest({1: {3}})
