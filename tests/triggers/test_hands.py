"""A trigger's thread receives the result of each of its requests."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from triggers.test_judge import known, record, version
from triggers.test_orders import gathered, nobody

from treadle.orchestrator.environment.connection_errors import Unreachable
from treadle.primitives.errors import CorruptError, UsageError
from treadle.triggers.kafka.effects import ThreadHands
from treadle.triggers.kafka.machine_events import (
    Answer,
    Bury,
    EffectDone,
    EffectFailed,
    Happening,
    RunEnded,
    Start,
    StartRefused,
)
from treadle.triggers.kafka.matching import Lineage
from treadle.triggers.start_requests import RunStarted, StartOrder

PLAIN = known(version(1, {}))


class Starts:
    """A Starter with one answer. Its runs never end."""

    def __init__(self, answer: RunStarted | Exception) -> None:
        self._answer = answer
        self.orders: list[StartOrder] = []
        self.watched: list[str] = []
        self.given_up = asyncio.Event()

    async def start(self, order: StartOrder) -> RunStarted:
        self.orders.append(order)
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer

    async def active(self, workflow: str, trigger: str) -> int:
        raise NotImplementedError

    async def wait(self, run: str) -> None:
        self.watched.append(run)
        if run == "over":
            return
        try:
            await asyncio.Event().wait()
        finally:
            self.given_up.set()


class Yard:
    """A writer of letters that answers at each poll."""

    def __init__(self, told: asyncio.Queue[Happening]) -> None:
        self._told = told
        self._tickets: list[int] = []

    def bury(self, letter: Bury) -> None:
        self._tickets.append(letter.ticket)

    def poll(self) -> None:
        while self._tickets:
            self._told.put_nowait(EffectDone(self._tickets.pop()))


def hands(starts: Starts, told: asyncio.Queue[Happening], at: Lineage = PLAIN) -> ThreadHands:
    yard: Any = Yard(told)
    return ThreadHands(asyncio.get_running_loop(), starts, nobody, lambda: at, told.put_nowait, yard)


@pytest.mark.parametrize(
    ("outcome", "answer"),
    [
        (RunStarted("r", True, {"end": 5}), EffectDone(7, {"end": 5})),
        (RunStarted("r", False, {"end": 5}), EffectDone(7, {"end": 5}, new=False)),
        (UsageError("it does not fit", "Mend it."), StartRefused(7, "it does not fit")),
        (Unreachable("nobody is there", "Wait."), EffectFailed(7, str(Unreachable("nobody is there", "Wait.")))),
        (CorruptError("somebody else wrote it"), EffectFailed(7, "somebody else wrote it")),
        (KeyError("a defect"), EffectFailed(7, "KeyError: 'a defect'")),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_a_start_is_answered(outcome: RunStarted | Exception, answer: Answer) -> None:
    starts, told = Starts(outcome), asyncio.Queue[Happening]()
    hands(starts, told).start(Start(7, gathered(PLAIN, record(3))))
    assert await asyncio.wait_for(told.get(), 60) == answer
    assert [order.run for order in starts.orders] == ["orders.live.ua.0.3"]


async def test_impossible_inputs_are_refused_before_any_request() -> None:
    at = known(version(1, {}, with_={"n": "${{ event.data.n }}"}))
    starts, told = Starts(KeyError()), asyncio.Queue[Happening]()
    hands(starts, told, at).start(Start(7, gathered(at, record(3))))
    answer = await asyncio.wait_for(told.get(), 60)
    assert isinstance(answer, StartRefused)
    assert "there is no event.data.n" in answer.reason
    assert starts.orders == []


async def test_letters_are_answered_in_a_later_turn() -> None:
    told = asyncio.Queue[Happening]()
    made = hands(Starts(KeyError()), told)
    made.bury(Bury(7, record(3), 1, "it does not fit"))
    assert told.empty()
    made.breathe()
    assert told.get_nowait() == EffectDone(7)


async def test_end_of_a_run_is_reported_and_no_task_waits_after_the_trigger_ended() -> None:
    starts, told = Starts(KeyError()), asyncio.Queue[Happening]()
    made = hands(starts, told)
    for run in ("open", "over"):
        made.watch(run)
    assert await asyncio.wait_for(told.get(), 60) == RunEnded("over")
    made.close()
    await asyncio.wait_for(starts.given_up.wait(), 60)
    assert (starts.watched, told.empty()) == (["open", "over"], True)
