"""Tasks that enter their coroutine before they are cancelled."""

from __future__ import annotations

import asyncio

import pytest

from treadle.primitives.asyncio_tasks import spawn


class Work:
    """A coroutine that records its progress."""

    def __init__(self, *, waits: bool = True) -> None:
        self.notes: list[str] = []
        self._waits = waits

    async def run(self) -> str:
        try:
            self.notes.append("entered")
            if self._waits:
                await asyncio.Event().wait()
            return "result"
        except asyncio.CancelledError:
            self.notes.append("cancelled")
            raise
        finally:
            self.notes.append("cleaned up")


async def test_spawned_task_cleans_up_when_cancelled_before_its_first_step() -> None:
    work = Work()
    task = spawn(work.run())
    assert task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert work.notes == ["entered", "cancelled", "cleaned up"]


async def test_plain_task_never_enters_its_coroutine_when_cancelled_at_once() -> None:
    """The reason for `spawn`. With eager tasks it would not be needed."""
    work = Work()
    task = asyncio.create_task(work.run())
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert work.notes == []


async def test_spawned_task_that_never_waits_is_still_cancelled() -> None:
    work = Work(waits=False)
    task = spawn(work.run())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert work.notes == ["entered", "cleaned up"]


async def test_cancellation_of_a_waiting_task_reaches_it_through_a_spawned_task() -> None:
    inner = Work(waits=False)

    async def outer() -> str:
        return await spawn(inner.run())

    task = asyncio.create_task(outer())
    await asyncio.sleep(0)  # now `outer` waits for the inner task, which has not begun
    assert inner.notes == []
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert inner.notes == ["entered", "cleaned up"]


async def test_spawned_task_is_cancelled_with_its_message_after_its_first_step() -> None:
    work = Work()
    task = spawn(work.run(), name="a name")
    await asyncio.sleep(0)
    task.cancel("why")
    with pytest.raises(asyncio.CancelledError, match="why"):
        await task
    assert (task.get_name(), task.cancelled()) == ("a name", True)


async def test_spawned_task_returns_results_and_raises_errors() -> None:
    async def fails() -> None:
        raise ValueError("no")

    assert await spawn(Work(waits=False).run()) == "result"
    with pytest.raises(ValueError, match="no"):
        await spawn(fails())


def test_loop_that_ends_lets_spawned_tasks_clean_up() -> None:
    work = Work()

    async def main() -> None:
        main.task = spawn(work.run())  # type: ignore[attr-defined]

    asyncio.run(main())
    assert work.notes == ["entered", "cancelled", "cleaned up"]
