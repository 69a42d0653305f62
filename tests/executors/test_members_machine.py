"""A member's messages and actions: the table of its state machine, entry by entry."""

from __future__ import annotations

from typing import Any

from treadle.executors.resident.machine import (
    BEAT,
    COPY,
    PATIENCE,
    SILENCE,
    Begin,
    EndMember,
    Instruction,
    KillTask,
    MemberMachine,
    Redial,
    Say,
)
from treadle.primitives.coordinator.messages import (
    Accepted,
    Alive,
    AssignedTask,
    Bye,
    Dismissed,
    Finished,
    GiveUp,
    Hello,
    Refused,
    Take,
    Withdrawn,
)

HELLO = Hello("m", "tcp://127.0.0.1:1", "host")


def machine(*, works_until: float = 100.0, ends: float = 120.0) -> MemberMachine:
    """A state machine connected at 0."""
    made = MemberMachine("m", HELLO.address, HELLO.host, works_until=works_until, ends=ends)
    assert made.connected(0.0) == [Say(HELLO), Say(Take())]
    return made


def said(instructions: list[Instruction]) -> list[Any]:
    return [one.message for one in instructions if isinstance(one, Say)]


def test_a_task_is_begun_and_its_result_said_until_it_is_accepted() -> None:
    one = machine()
    assert one.heard(AssignedTask("t", 7, b"body"), 1.0) == [Begin("t", b"body")]
    assert said(one.done("t", b"result")) == [Finished("t", 7, b"result")]
    assert one.disconnected(3.0) == [Redial()]
    assert said(one.connected(4.0)) == [HELLO, Finished("t", 7, b"result")]
    assert said(one.heard(Accepted("t", 7), 5.0)) == [Take()]


def test_task_resent_after_a_reconnect_is_not_restarted() -> None:
    one = machine()
    one.heard(AssignedTask("t", 7, b""), 1.0)
    one.disconnected(2.0)
    assert said(one.connected(3.0)) == [HELLO]
    assert one.heard(AssignedTask("t", 7, b""), 3.0) == []
    assert said(one.done("t", b"r")) == [Finished("t", 7, b"r")]


def test_result_carries_the_epoch_of_the_last_assignment_of_its_task() -> None:
    one = machine()
    one.heard(AssignedTask("t", 7, b""), 1.0)
    one.done("t", b"r")
    assert said(one.heard(AssignedTask("t", 8, b""), 3.0)) == [Finished("t", 8, b"r")]


def test_a_withdrawn_task_is_stopped_and_its_late_result_is_nobodys() -> None:
    one = machine()
    one.heard(AssignedTask("t", 7, b""), 1.0)
    assert one.heard(Withdrawn("t", 6), 2.0) == []
    assert one.heard(Withdrawn("t", 7), 2.0) == [KillTask(), Say(Take())]
    assert one.done("t", b"r") == []
    assert one.heard(AssignedTask("u", 9, b""), 4.0) == [Begin("u", b"")]


def test_a_result_that_comes_as_its_task_is_withdrawn_is_forgotten() -> None:
    one = machine()
    one.heard(AssignedTask("t", 7, b""), 1.0)
    one.done("t", b"r")
    assert said(one.heard(Withdrawn("t", 7), 3.0)) == [Take()]
    assert one.heard(Refused("t", "there is no such task"), 3.0) == []
    one.disconnected(4.0)
    assert said(one.connected(5.0)) == [HELLO, Take()]


def test_a_member_that_was_taken_for_lost_leaves_when_it_hears_of_it() -> None:
    """For example it stood still for longer than its lease, and its slot has another member now."""
    one = machine()
    one.heard(AssignedTask("t", 7, b""), 1.0)
    one.disconnected(30.0)
    one.done("t", b"r")
    assert said(one.connected(31.0)) == [HELLO, Finished("t", 7, b"r")]
    assert one.heard(Refused("t", "there is no such task"), 31.0) == [Say(Bye()), EndMember("it was given up")]


def test_after_its_working_time_it_takes_nothing_and_stays() -> None:
    one = machine()
    one.heard(AssignedTask("t", 7, b""), 99.0)
    one.done("t", b"r")
    assert one.heard(Accepted("t", 7), 101.0) == []
    assert said(one.heard(AssignedTask("u", 8, b""), 102.0)) == [GiveUp("u", 8)]
    assert EndMember("its time is over") not in one.tick(119.0)
    assert one.tick(120.0) == [Say(Bye()), EndMember("its time is over")]
    assert one.over


def test_a_second_task_at_the_same_time_is_given_up() -> None:
    one = machine()
    one.heard(AssignedTask("t", 7, b""), 1.0)
    assert one.heard(AssignedTask("u", 8, b""), 1.0) == [Say(GiveUp("u", 8))]


def test_dismissed_member_stops_its_task_and_says_bye() -> None:
    one = machine()
    one.heard(AssignedTask("t", 7, b""), 1.0)
    assert one.heard(Dismissed(), 2.0) == [KillTask(), Say(Bye()), EndMember("it is not needed any more")]
    assert one.heard(AssignedTask("u", 8, b""), 3.0) == []
    assert one.tick(4.0) == []


def test_signs_of_life_keep_it_and_silence_makes_it_dial_again() -> None:
    one = machine()
    assert one.wakes_at() == BEAT
    assert one.tick(BEAT) == [Say(Alive())]
    one.heard(Alive(), BEAT)
    assert one.tick(BEAT + 0.1) == []
    assert one.tick(BEAT + SILENCE + 0.1) == [Redial()]
    assert one.disconnected(BEAT + SILENCE + 0.2) == [], "it knows"


def test_with_nothing_to_do_for_long_it_leaves() -> None:
    one = MemberMachine("m", HELLO.address, HELLO.host, works_until=500.0, ends=500.0, idle=90.0)
    one.connected(0.0)
    one.heard(AssignedTask("t", 7, b""), 50.0)
    assert EndMember("nobody needs it") not in one.tick(199.0), "it is at work"
    one.disconnected(199.0)
    one.connected(200.0)
    one.done("t", b"r")
    one.heard(Accepted("t", 7), 200.0)
    one.heard(Alive(), 289.0)
    assert EndMember("nobody needs it") not in one.tick(290.0)
    assert one.tick(290.1) == [Say(Bye()), EndMember("nobody needs it")]


def test_a_copy_whose_name_is_taken_leaves() -> None:
    one = machine()
    assert EndMember(COPY) in one.heard(Refused("m", "it is here"), 1.0)
    assert one.over


def test_without_a_coordinator_for_long_it_stops_and_leaves() -> None:
    one = machine()
    one.heard(AssignedTask("t", 7, b""), 1.0)
    one.disconnected(2.0)
    assert one.tick(2.0 + PATIENCE) == []
    assert one.wakes_at() == 2.0 + PATIENCE
    assert one.tick(2.1 + PATIENCE) == [KillTask(), Say(Bye()), EndMember("there is no coordinator")]
