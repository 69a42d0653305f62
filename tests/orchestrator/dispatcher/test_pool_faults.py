"""Slots that forget, lose, keep or outlive their tasks: every offered task ends once, and every slot returns."""

from __future__ import annotations

import asyncio

import pytest
from eventually import eventually_async

from treadle.primitives.errors import FailureClass, InternalError

from .pool_faults import CountingClient, Fault, faulty_pool


@pytest.mark.parametrize("turns", [0, 1, 2, 3])
async def test_task_that_is_aborted_ends_once_in_any_turn_of_the_loop(turns: int) -> None:
    pool, executor = faulty_pool(2, "waits", "waits")
    client = CountingClient(2)
    pool.join(client)
    for _ in range(turns):
        await asyncio.sleep(0)
    pool.abort(client, ["s0"])
    executor.faults.clear()
    await eventually_async(lambda: 0 in client.done)
    executor.slots[1].end()
    await eventually_async(lambda: client.done == {0, 1} and pool.busy == 0)
    assert client.ended_ == client.offered == {0: 2, 1: 1}
    await pool.leave(client)


async def test_client_that_leaves_at_once_hears_of_every_end() -> None:
    pool, executor = faulty_pool(2)
    client, other = CountingClient(5), CountingClient(3)
    pool.join(client)
    await pool.leave(client)
    assert client.ended_ == client.offered == {0: 1, 1: 1}
    assert [slot.task for slot in executor.slots] == ["", ""]
    pool.join(other)
    await eventually_async(lambda: len(other.done) == 3)
    await pool.leave(other)


@pytest.mark.parametrize(
    ("fault", "how"), [("forgets", "its slot has forgotten it"), ("is silent", "without a report")]
)
async def test_task_that_no_slot_knows_ends_as_worker_lost(fault: Fault, how: str) -> None:
    pool, executor = faulty_pool(1, fault)
    client = CountingClient(1)
    pool.join(client)
    await eventually_async(lambda: client.done == {0} and pool.busy == 0)
    (failure,) = client.failures
    assert failure.failure is FailureClass.WORKER_LOST
    assert how in failure.how
    assert client.ended_ == client.offered == {0: 2}
    assert executor.slots[0].stops == (fault == "forgets")
    await pool.leave(client)


async def test_slot_that_keeps_a_task_is_reset_before_it_gets_another() -> None:
    pool, executor = faulty_pool(1, "lingers")
    client = CountingClient(3)
    pool.join(client)
    await eventually_async(lambda: len(client.done) == 3)
    assert executor.slots[0].stops == 1
    await pool.leave(client)


async def test_idle_slot_that_runs_an_unassigned_task_is_reset() -> None:
    pool, executor = faulty_pool(1)
    client = CountingClient(0)
    pool.join(client)
    executor.slots[0].task = "nobody's"
    await eventually_async(lambda: executor.slots[0].stops == 1)
    client.waiting.append(0)
    pool.kick()
    await eventually_async(lambda: client.done == {0})
    await pool.leave(client)


async def test_task_that_does_not_end_runs_elsewhere_and_its_slot_returns_later() -> None:
    pool, executor = faulty_pool(2, "clings", "waits")
    client = CountingClient(2)
    pool.join(client)
    await asyncio.sleep(0)
    pool.abort(client, ["s0"])
    await eventually_async(lambda: client.ended_[0] == 1)  # by the watchdog
    executor.slots[1].end()
    await eventually_async(lambda: client.done == {0, 1})
    assert client.refused is None
    await pool.leave(client)  # does not wait for the slot
    executor.slots[0].end()
    await eventually_async(lambda: pool.busy == 0)
    again = CountingClient(2)
    pool.join(again)
    executor.faults.extend(["waits", "waits"])
    await eventually_async(lambda: all(slot.task for slot in executor.slots))
    await pool.leave(again)


async def test_clients_are_refused_when_no_slot_is_left_in_service() -> None:
    pool, executor = faulty_pool(1, "clings")
    client, late = CountingClient(2), CountingClient(1)
    pool.join(client)
    await asyncio.sleep(0)
    pool.abort(client, ["s0"])
    await eventually_async(lambda: client.refused is not None)
    assert isinstance(client.refused, InternalError)
    assert "out of service: s0" in str(client.refused)
    pool.join(late)
    assert late.refused is not None
    executor.slots[0].end()
    await eventually_async(lambda: pool.busy == 0)
    for one in (client, late):
        await pool.leave(one)


async def test_slot_that_raises_is_used_again() -> None:
    pool, executor = faulty_pool(1, "raises", "dies")
    client = CountingClient(2)
    pool.join(client)
    await eventually_async(lambda: len(client.done) == 2 and pool.busy == 0)
    assert [str(error) for error in client.errors] == ["a defect"]
    assert [failure.how for failure in client.failures] == ["it died"]
    assert client.ended_ == client.offered
    assert executor.slots[0].stops == 0
    await pool.leave(client)
