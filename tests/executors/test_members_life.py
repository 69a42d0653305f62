"""The use, replacement and dismissal of a slot's member, and the blame for the end of its time."""

from __future__ import annotations

import pytest

from treadle.executors.program import Failure, ItemSplit, Job, Keep, Outcome, Partition, Program, Report, Task
from treadle.executors.resident.lifetime import (
    HANDOVER,
    CallWindow,
    Holdings,
    SlotMember,
    choose,
    needs,
    not_their_fault,
    rest,
)
from treadle.primitives.encoding.references import BlockRef, Part
from treadle.primitives.errors import FailureClass

SPAN = CallWindow(work=100.0, total=120.0)
MIB = 1 << 20


def task(*partitions: int, timeout: float = 0.0, run: str = "r") -> Task:
    inputs = tuple(Partition(index, ItemSplit(())) for index in partitions)
    job = Job(run, "w", "", 0, "file:///s", "")
    return Task("s/0", job, Program("s", (), Keep()), inputs, timeout)


def test_time_is_kept_for_the_report_and_for_handing_blocks_over() -> None:
    assert CallWindow.of(900.0) == CallWindow(895.0 - HANDOVER, 895.0)
    assert CallWindow.of(20.0) == CallWindow(12.0, 15.0)


def test_a_task_needs_its_timeout_or_a_share_of_the_time() -> None:
    assert needs(task(0, 1, timeout=30.0), SPAN) == 30.0
    assert needs(task(0), SPAN) == 10.0
    assert needs(task(0, timeout=500.0), SPAN) == SPAN.work


@pytest.mark.parametrize(
    ("member", "size", "seconds", "now", "what"),
    [
        (None, 0, 1.0, 0.0, "call"),
        (SlotMember(0.0, 512 * MIB, fresh=False), 512 * MIB, 10.0, 90.0, "use"),
        (SlotMember(0.0, 512 * MIB, fresh=False), 512 * MIB, 10.0, 90.1, "replace"),
        (SlotMember(0.0, 512 * MIB, fresh=True), 512 * MIB, 100.0, 90.1, "use"),
        (SlotMember(0.0, 512 * MIB, fresh=True), 1024 * MIB, 1.0, 0.0, "replace"),
        (SlotMember(0.0, 1024 * MIB, fresh=False), 512 * MIB, 1.0, 0.0, "use"),
    ],
    ids=["none", "enough time", "too late", "fresh", "too small", "larger"],
)
def test_member_for_a_task(member: SlotMember | None, size: int, seconds: float, now: float, what: str) -> None:
    assert choose(member, SPAN, size, seconds, now) == what


@pytest.mark.parametrize(
    ("used", "holds", "now", "what"),
    [
        (10.0, True, 20.0, ("keep", 70.0)),
        (60.0, True, 61.0, ("keep", 100.0)),
        (10.0, True, 70.0, ("dismiss", 70.0)),
        (90.0, True, 100.0, ("replace", 100.0)),
        (90.0, False, 100.0, ("dismiss", 100.0)),
    ],
)
def test_member_without_a_task(used: float, holds: bool, now: float, what: tuple[str, float]) -> None:
    assert rest(SlotMember(0.0, MIB, fresh=False), SPAN, used, 60.0, holds, now) == what


def timed_out() -> list[Report]:
    return [Failure(0, 1, FailureClass.TIMED_OUT, "late")]


def test_a_partition_cut_off_by_the_end_of_a_used_member_has_lost_its_worker() -> None:
    (found,) = not_their_fault(timed_out(), began=50.0, ended=100.1, span=SPAN)
    assert isinstance(found, Failure)
    assert found.failure is FailureClass.WORKER_LOST
    assert not_their_fault(timed_out(), began=5.0, ended=100.1, span=SPAN) == timed_out(), "it had all the time"
    assert not_their_fault(timed_out(), began=50.0, ended=60.0, span=SPAN) == timed_out(), "its own timeout"
    assert not_their_fault([], began=50.0, ended=100.1, span=SPAN) == []


def outcome(index: int, *locations: str) -> Outcome:
    ref = BlockRef(f"s/{index}.1", "objects", 9, (Part(0, 9, 1, 0),), locations)
    return Outcome(index, 1, "objects", 1, block=ref)


def test_handover_lists_exactly_the_blocks_of_the_member() -> None:
    holds = Holdings()
    assert not holds
    holds.note(task(0), [outcome(0, "store"), outcome(1, "inline")])
    assert not holds
    holds.note(task(0), [outcome(2, "host:a"), outcome(3, "host:a", "store"), *timed_out()])
    holds.note(task(0), [outcome(4, "host:b")])
    holds.note(task(0, run="other"), [outcome(5, "host:b")])
    first, second = holds.sets()
    assert (first.run, first.hosts, dict(first.blocks)) == ("r", ("a", "b"), {"s/2.1": 9, "s/3.1": 9, "s/4.1": 9})
    assert (second.run, second.hosts) == ("other", ("b",))
