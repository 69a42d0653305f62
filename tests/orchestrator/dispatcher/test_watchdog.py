"""The watchdog's findings from the pool's view and the slots' reports. The clock is a number."""

from __future__ import annotations

from treadle.orchestrator.dispatcher.decisions.watchdog import LONGEST_STEP, Finding, SlotObservation, Watchdog

FORGOTTEN, BUSY, IDLE = SlotObservation("t", ""), SlotObservation("t", "t"), SlotObservation("", "")


def looks(*seen: SlotObservation, every: float = 5.0, patience: float = 30.0) -> list[Finding | None]:
    """The finding of each look at one slot."""
    watchdog = Watchdog(patience)
    return [watchdog.look({"s": one}, number * every).get("s") for number, one in enumerate(seen)]


def test_slot_that_forgets_its_task_is_lost_after_patience() -> None:
    assert looks(*[FORGOTTEN] * 10) == [None] * 6 + [Finding.LOST] + [None] * 3


def test_slot_that_agrees_is_never_found() -> None:
    assert looks(*[BUSY, IDLE] * 50) == [None] * 100


def test_slot_that_agrees_in_between_is_given_the_whole_patience_again() -> None:
    assert looks(*[FORGOTTEN] * 6, BUSY, *[FORGOTTEN] * 6) == [None] * 13


def test_slot_with_another_task_than_it_was_given_is_lost() -> None:
    assert looks(*[SlotObservation("t", "other")] * 7)[-1] is Finding.LOST


def test_slot_that_runs_an_unassigned_task_is_a_stray() -> None:
    assert looks(*[SlotObservation("", "t")] * 7)[-1] is Finding.STRAY


def test_slot_that_does_not_end_its_task_is_stuck_despite_its_reports() -> None:
    for said in ("", "t"):
        assert looks(*[SlotObservation("", said, ending=True)] * 7)[-1] is Finding.STUCK


def test_slot_whose_trouble_changes_is_found_for_each() -> None:
    found = looks(*[FORGOTTEN] * 7, *[SlotObservation("", "", ending=True)] * 7)
    assert [one for one in found if one] == [Finding.LOST, Finding.STUCK]


def test_pause_of_the_driver_counts_as_one_step() -> None:
    assert looks(FORGOTTEN, FORGOTTEN, every=3600.0) == [None, None]
    assert looks(*[FORGOTTEN] * 4, every=3600.0)[-1] is Finding.LOST
    assert 3 * LONGEST_STEP == 30.0
