"""The shared classes behind locks, queues and pools, without processes."""

from __future__ import annotations

from threading import BrokenBarrierError

import pytest
from primitives.objects.local import Late, Local

from treadle.multiprocessing import HolderLost
from treadle.multiprocessing.pipes import PipeState
from treadle.multiprocessing.state import CHANNEL_BYTES, Permits, PoolTasks, QueueItems, Rendezvous, Waiters

WAITS = Local.WAITS


def test_lost_permits_raise_once_and_are_free() -> None:
    it = Local(Permits, 2, 2, True)
    holder, one, two, three = (it.session() for _ in range(4))
    it.call(one, "acquire", holder)
    it.call(two, "acquire", holder)
    assert it.call(one, "acquire", 1) is WAITS
    assert it.call(two, "acquire", 1) is WAITS
    it.end(holder)
    with pytest.raises(HolderLost):
        it.value(one)
    assert it.value(two) is None
    assert it.call(three, "value") == 1


def test_permit_of_a_dead_holder_is_not_lost_when_another_process_releases_it() -> None:
    it = Local(Permits, 1, 1, True)
    holder = it.session()
    it.call(1, "acquire", holder)
    it.end(holder)
    it.call(1, "release", 1)
    assert it.call(1, "try_acquire", 1) is True
    assert it.call(1, "try_acquire", 1) is False


def test_permit_without_a_maximum_has_no_holder() -> None:
    it = Local(Permits, 1, 2**31, False)
    holder = it.session()
    it.call(1, "acquire", holder)
    it.end(holder)
    assert it.call(1, "try_acquire", 1) is False


def test_permits_are_not_released_above_their_maximum() -> None:
    it = Local(Permits, 1, 1, True)
    with pytest.raises(ValueError, match="too many"):
        it.call(1, "release", 1)


def test_notification_of_a_dead_waiter_goes_to_the_next() -> None:
    it = Local(Waiters)
    one, two = it.session(), it.session()
    for session in (one, two):
        it.call(session, "enlist")
    it.call(1, "notify", 1)
    it.end(one)
    assert it.call(two, "wait") is None


def test_notification_before_the_wait_counts_and_one_after_its_timeout_does_not() -> None:
    it = Local(Waiters)
    one, two = it.session(), it.session()
    it.call(one, "enlist")
    it.call(1, "notify", 1)
    assert it.call(one, "wait") is None
    it.call(two, "enlist")
    assert it.call(two, "wait", timeout=1) is WAITS
    it.later(2)
    with pytest.raises(Late):
        it.value(two)
    assert it.call(1, "count") == 0


def test_parties_pass_when_the_last_one_opens_the_barrier() -> None:
    it = Local(Rendezvous, 2)
    two, late = it.session(), it.session()
    assert it.call(1, "arrive") is WAITS
    assert it.call(two, "arrive") == (1, True)
    assert it.call(late, "arrive") is WAITS  # the next round begins when the action has run
    assert it.value(1) is WAITS
    it.call(two, "open")
    assert it.value(1) == (0, False)
    assert it.call(two, "status") == (1, False)


@pytest.mark.parametrize("event", ["reset", "abort", "death", "timeout"])
def test_waiting_parties_raise_when_the_barrier_is(event: str) -> None:
    it = Local(Rendezvous, 3)
    two, other = it.session(), it.session()
    assert it.call(1, "arrive") is WAITS
    assert it.call(two, "arrive", timeout=5) is WAITS
    if event == "death":
        it.end(two)
    elif event == "timeout":
        it.later(6)
    else:
        it.call(other, event)
    with pytest.raises(BrokenBarrierError):
        it.value(1)
    assert it.call(other, "status") == (0, event != "reset")


def test_place_of_an_item_that_was_not_sent_is_free_when_its_process_dies() -> None:
    it = Local(QueueItems, 1, True)
    sender, two = it.session(), it.session()
    it.call(1, "reserve", sender)
    assert it.call(two, "reserve", two) is WAITS
    it.end(sender)
    assert it.value(two) is None
    it.call(two, "put", two, b"item")
    assert it.call(1, "get", 1) == b"item"
    assert it.call(two, "join") is WAITS
    it.call(1, "done", 1)
    assert it.value(two) is None


def test_join_raises_when_only_items_of_dead_processes_are_not_done() -> None:
    it = Local(QueueItems, 0, True)
    dead, alive, joiner = it.session(), it.session(), it.session()
    for item in (b"1", b"2"):
        it.call(1, "reserve", 1)
        it.call(1, "put", 1, item)
    it.call(1, "get", dead)
    it.call(1, "get", alive)
    it.end(dead)
    assert it.call(joiner, "join") is WAITS
    it.call(1, "done", alive)
    with pytest.raises(HolderLost):
        it.value(joiner)
    assert it.call(joiner, "join") is None


def test_sender_waits_while_the_items_have_too_many_bytes() -> None:
    it = Local(QueueItems)
    two = it.session()
    it.call(1, "put", 1, b"x" * CHANNEL_BYTES)
    assert it.call(1, "put", 1, b"y") is WAITS
    it.call(two, "get", two)
    assert it.value(1) is None


def test_worker_waits_while_the_results_have_too_many_bytes() -> None:
    it = Local(PoolTasks, 0, 1)
    worker = it.session()
    it.call(1, "finish", (7, 0), b"x" * CHANNEL_BYTES)
    assert it.call(worker, "finish", (7, 1), b"y") is WAITS
    assert len(it.call(1, "collect")) == 1
    assert it.value(worker) is None


def test_task_of_a_dead_worker_runs_again_before_others_and_then_fails() -> None:
    it = Local(PoolTasks, 1, 10)
    one, two = it.session(), it.session()
    it.call(1, "add", (7, 0), b"task")
    it.call(1, "add", (7, 1), b"other")
    for worker in (one, two):
        assert it.call(worker, "take", f"worker {worker}") == b"task"
        it.end(worker)
    assert it.call(1, "collect") == [((7, 0), None, f"worker {two}")]
    assert it.call(1, "take", "") == b"other"


def test_result_of_a_worker_that_dies_later_is_kept() -> None:
    it = Local(PoolTasks, 0, 1)
    worker = it.session()
    it.call(1, "add", (7, 0), b"task")
    it.call(worker, "take", "worker")
    it.call(worker, "finish", (7, 0), b"result")
    it.end(worker)
    assert it.call(1, "collect") == [((7, 0), b"result", "")]
    assert it.call(1, "add", (7, 1), b"task") is None
    assert it.call(1, "add", (7, 2), b"task") is WAITS


def test_end_of_a_pipe_whose_process_died_before_it_arrived_is_closed() -> None:
    it = Local(PipeState)
    mine, process, one, two = (it.session() for _ in range(4))
    it.call(mine, "hold", 0, mine, 0)
    journeys = [it.call(mine, "leave", 1) for _ in range(2)]
    assert it.call(one, "get", 0) is WAITS
    it.call(mine, "hold", 1, process, journeys[0])
    it.end(process)
    assert it.call(two, "get", 0) is WAITS
    for journey in journeys:
        it.call(mine, "arrive", 1, journey)
    for session in (one, two):
        with pytest.raises(EOFError):
            it.value(session)
