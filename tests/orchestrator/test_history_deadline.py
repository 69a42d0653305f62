"""When a stage's deadline begins."""

from __future__ import annotations

from treadle.orchestrator.dispatcher.history import replay
from treadle.orchestrator.dispatcher.ledger import Epoch, Expected, Record


def test_a_new_driver_keeps_the_deadline_and_a_resumption_gets_a_fresh_one() -> None:
    first: list[Record] = [Epoch(1, "a", 1, 10.0), Expected("s", 3, 11.0)]
    assert replay(first, "s").opened == 11.0
    taken_over: list[Record] = [*first, Epoch(2, "b", 1, 20.0)]
    assert replay(taken_over, "s").opened == 11.0
    assert replay([*taken_over, Epoch(3, "c", 2, 30.0)], "s").opened == 30.0
    assert replay([*taken_over, Epoch(3, "c", 2, 30.0)], "other").opened is None
