"""The library of objects."""

from __future__ import annotations

from operator import add

import pytest
from primitives.objects.local import Late, Local

from treadle.primitives.objects.catalog import (
    Boolean,
    Condition,
    Counter,
    CyclicBarrier,
    Flag,
    Latch,
    List,
    Lock,
    Map,
    Number,
    PriorityQueue,
    Promise,
    Queue,
    RateLimit,
    ReadWriteLock,
    Reference,
    Semaphore,
    Set,
)

WAITS = Local.WAITS


def test_counter_counts_up_and_down() -> None:
    it = Local(Counter, 5)
    assert [it.call(1, "increment"), it.call(1, "decrement", 4), it.call(1, "get"), it.call(1, "reset")] == [6, 2, 2, 2]
    assert it.call(1, "get") == 0


def test_number_returns_the_new_or_the_earlier_value() -> None:
    it = Local(Number, 1.5)
    assert [it.call(1, "add", 1), it.call(1, "get_and_add", 2), it.call(1, "get")] == [2.5, 2.5, 4.5]


def test_boolean_toggles() -> None:
    it = Local(Boolean)
    assert [it.call(1, "toggle"), it.call(1, "toggle"), it.call(1, "get")] == [True, False, False]


def test_reference_is_replaced_only_if_it_is_as_expected() -> None:
    it = Local(Reference, "a")
    assert not it.call(1, "compare_and_set", "b", "c")
    assert it.call(1, "compare_and_set", "a", "c")
    assert it.call(1, "exchange", 4) == "c"
    assert it.call(1, "update", add, 3) == 7


def test_list_appends_pops_and_slices() -> None:
    it = Local(List, "ab")
    assert [it.call(1, "append", "c"), it.call(1, "extend", "de"), it.call(1, "pop", 0)] == [2, 5, "a"]
    assert it.call(1, "slice", 1, 3) == ["c", "d"]
    with pytest.raises(IndexError):
        it.call(1, "get", 9)


def test_set_reports_new_items() -> None:
    it = Local(Set, {1})
    assert [it.call(1, "add", 1), it.call(1, "add", 2), it.call(1, "update", [2, 3])] == [False, True, 1]
    assert [it.call(1, "discard", 1), it.call(1, "has", 1), it.call(1, "all")] == [True, False, {2, 3}]


def test_map_merges_values_and_returns_the_largest() -> None:
    it = Local(Map, {"a": 1})
    assert it.call(1, "merge", "a", 4, add) == 5
    it.call(1, "merge_all", {"b": 7, "a": 1}, add)
    it.call(1, "put", "c", 2)
    assert it.call(1, "top", 2) == [("b", 7), ("a", 6)]
    assert [it.call(1, "put_if_absent", "c", 9), it.call(1, "pop", "c"), it.call(1, "size")] == [2, 2, 2]


def test_lock_goes_to_the_first_waiting_caller_with_a_higher_token() -> None:
    it = Local(Lock)
    two, three = it.session(), it.session()
    first = it.call(1, "acquire")
    assert it.call(two, "acquire") is WAITS
    assert it.call(three, "acquire") is WAITS
    it.call(1, "release")
    assert it.value(two) > first
    assert it.value(three) is WAITS


def test_lock_is_released_by_its_owner_only() -> None:
    it = Local(Lock)
    it.call(1, "acquire")
    with pytest.raises(RuntimeError, match="does not own"):
        it.call(it.session(), "release")


def test_lock_of_an_ended_session_is_released() -> None:
    it = Local(Lock)
    two = it.session()
    it.call(1, "acquire")
    it.call(two, "acquire")
    it.end(1)
    assert it.value(two)


def test_ended_session_does_not_get_the_lock_for_which_it_waited() -> None:
    it = Local(Lock)
    two, three = it.session(), it.session()
    it.call(1, "acquire")
    it.call(two, "acquire")
    it.call(three, "acquire")
    it.end(two)
    it.call(1, "release")
    assert it.value(three)


def test_lock_waits_no_longer_than_its_timeout() -> None:
    it = Local(Lock)
    two = it.session()
    it.call(1, "acquire")
    it.call(two, "acquire", timeout=2)
    it.later(1.9)
    assert it.value(two) is WAITS
    it.later(0.2)
    with pytest.raises(Late):
        it.value(two)
    it.call(1, "release")
    assert not it.call(1, "locked")


def test_condition_wakes_waiting_callers_in_order_once_the_lock_is_free() -> None:
    it = Local(Condition)
    two, three = it.session(), it.session()
    for session in (two, three):
        it.call(session, "acquire")
        assert it.call(session, "wait") is WAITS
    it.call(1, "acquire")
    it.call(1, "notify")
    assert it.value(two) is WAITS
    it.call(1, "release")
    assert it.value(two)
    assert it.value(three) is WAITS


def test_readers_share_a_lock_and_a_waiting_writer_goes_before_new_readers() -> None:
    it = Local(ReadWriteLock)
    two, three = it.session(), it.session()
    it.call(1, "acquire_read")
    it.call(two, "acquire_read")
    assert it.call(three, "acquire_write") is WAITS
    assert it.call(it.session(), "acquire_read") is WAITS
    it.call(1, "release")
    it.call(two, "release")
    assert it.value(three)


def test_readers_go_on_when_a_waiting_writer_gives_up() -> None:
    it = Local(ReadWriteLock)
    two, three = it.session(), it.session()
    it.call(1, "acquire_read")
    it.call(two, "acquire_write", timeout=1)
    it.call(three, "acquire_read")
    it.later(2)
    assert it.value(three)


def test_semaphore_gives_as_many_permits_as_it_has() -> None:
    it = Local(Semaphore, 3)
    two = it.session()
    it.call(1, "acquire", 2)
    assert it.call(two, "acquire", 2) is WAITS
    assert it.call(it.session(), "acquire")
    it.call(1, "release")
    assert it.value(two) is WAITS
    it.call(1, "release")
    assert it.value(two)
    with pytest.raises(RuntimeError, match="does not hold"):
        it.call(1, "release")


def test_permits_of_an_ended_session_are_free() -> None:
    it = Local(Semaphore, 2)
    two = it.session()
    it.call(two, "acquire", 2)
    it.end(two)
    assert it.call(1, "available") == 2


def test_barrier_releases_all_parties_again_and_again() -> None:
    it = Local(CyclicBarrier, 3)
    sessions = [1, it.session(), it.session()]
    for generation in range(3):
        assert [it.call(session, "wait") for session in sessions[:2]] == [WAITS, WAITS]
        assert it.call(sessions[2], "wait") == generation
        assert [it.value(session) for session in sessions[:2]] == [generation, generation]


def test_party_that_gives_up_has_not_arrived_at_the_barrier() -> None:
    it = Local(CyclicBarrier, 2)
    two = it.session()
    it.call(1, "wait", timeout=1)
    it.later(2)
    assert it.call(two, "wait") is WAITS
    assert it.call(1, "wait") == 0


def test_latch_opens_after_its_count_for_ever() -> None:
    it = Local(Latch, 2)
    two = it.session()
    assert it.call(two, "wait") is WAITS
    assert [it.call(1, "count_down"), it.call(1, "count_down")] == [1, 0]
    assert it.value(two) is None
    assert it.call(1, "wait") is None


def test_event_releases_callers_while_it_is_set() -> None:
    it = Local(Flag)
    two = it.session()
    assert it.call(two, "wait") is WAITS
    it.call(1, "set")
    assert it.value(two) is None
    it.call(1, "clear")
    assert it.call(two, "wait") is WAITS


def test_future_is_set_once_and_raises_its_error() -> None:
    it = Local(Promise)
    two = it.session()
    assert it.call(two, "result") is WAITS
    assert it.call(1, "set_exception", KeyError("gone"))
    assert not it.call(1, "set_result", 4)
    with pytest.raises(KeyError, match="gone"):
        it.value(two)


def test_queue_is_first_in_first_out_and_bounded() -> None:
    it = Local(Queue, 2)
    two = it.session()
    it.call(1, "put", "a")
    it.call(1, "put", "b")
    assert it.call(two, "put", "c") is WAITS
    assert it.call(1, "get") == "a"
    assert it.value(two) is None
    assert it.call(1, "get_many", 5) == ["b", "c"]


def test_closed_queue_is_emptied_and_then_ends() -> None:
    it = Local(Queue)
    two = it.session()
    it.call(1, "put", "a")
    it.call(1, "close")
    assert it.call(1, "get") == "a"
    with pytest.raises(EOFError):
        it.call(two, "get")
    with pytest.raises(RuntimeError, match="closed"):
        it.call(1, "put", "b")


def test_priority_queue_returns_the_lowest_first() -> None:
    it = Local(PriorityQueue)
    for item, priority in (("b", 2), ("a", 1), ("c", 2)):
        it.call(1, "put", item, priority)
    assert [it.call(1, "get") for _ in range(3)] == ["a", "b", "c"]


def test_rate_limiter_spaces_calls_after_a_burst() -> None:
    it = Local(RateLimit, 2.0, 2)
    sessions = [it.session() for _ in range(4)]
    waits = [it.call(session, "acquire") is WAITS for session in sessions]
    assert waits == [False, False, True, True]
    it.later(0.5)
    assert [it.value(session) is WAITS for session in sessions] == [False, False, False, True]
    it.later(0.5)
    assert it.value(sessions[3]) is None
    assert not it.call(1, "try_acquire")
