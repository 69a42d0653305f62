"""The queue of tasks: their assignment, their order, and their return when the holder does not finish them."""

from __future__ import annotations

import pytest

from treadle.primitives.coordinator import CoordinatorLimits, Returned
from treadle.primitives.coordinator import messages as m
from treadle.primitives.coordinator.component import Epochs, Refusal
from treadle.primitives.coordinator.task_queue import Tasks


class Desk:
    """A queue, with its messages to members and to the owner of the tasks."""

    def __init__(self, results: int = 100) -> None:
        self.told: list[tuple[str, m.ToMember]] = []
        self.returned: list[Returned] = []
        self.tasks = Tasks(
            lambda member, message: self.told.append((member, message)),
            self.returned.append,
            Epochs(0),
            CoordinatorLimits(results=results),
        )

    def offer(self, names: str, member: str = "") -> None:
        for name in names:
            self.tasks.offer(name, name.encode(), member)

    def given(self) -> list[tuple[str, str]]:
        """(member, task) of the tasks given out since the last request."""
        told, self.told = self.told, []
        return [(member, message.task) for member, message in told if isinstance(message, m.AssignedTask)]

    def epoch(self, member: str, name: str) -> int:
        """The epoch of the member's task, from its reminder."""
        self.tasks.remind(member)
        return next(
            message.epoch for _, message in self.told if isinstance(message, m.AssignedTask) and message.task == name
        )


def test_member_gets_as_many_tasks_as_it_asked_for_in_order_of_requests() -> None:
    desk = Desk()
    desk.tasks.take("a", 3)
    desk.tasks.take("b", 1)
    desk.offer("12345")
    assert desk.given() == [("a", "1"), ("a", "2"), ("a", "3"), ("b", "4")]
    desk.tasks.take("b", 2)
    desk.offer("67")
    assert desk.given() == [("b", "5"), ("b", "6")]


def test_repeated_request_replaces_the_number_of_wanted_tasks() -> None:
    desk = Desk()
    desk.tasks.take("a", 3)
    desk.tasks.take("a", 0)
    desk.offer("12")
    assert desk.given() == []
    desk.tasks.take("a", 2)
    desk.tasks.take("a", 1)
    assert desk.given() == [("a", "1"), ("a", "2")]
    desk.offer("34")
    assert desk.given() == [("a", "3")]


def test_returned_task_goes_behind_the_others_to_a_free_member() -> None:
    desk = Desk()
    desk.tasks.take("a", 1)
    desk.offer("12")
    desk.tasks.give_up("a", m.GiveUp("1", desk.epoch("a", "1")))
    desk.given()
    desk.tasks.take("b", 2)
    assert desk.given() == [("b", "2"), ("b", "1")]
    desk.tasks.take("a", 1)
    desk.tasks.give_up("b", m.GiveUp("2", desk.epoch("b", "2")))
    assert desk.given()[-1] == ("a", "2"), "at once, where somebody waits"
    assert not desk.returned


def test_only_the_holder_returns_a_task() -> None:
    desk = Desk()
    desk.tasks.take("a", 1)
    desk.tasks.take("b", 1)
    desk.offer("1")
    epoch = desk.epoch("a", "1")
    desk.given()
    for member, name, said in (("b", "1", epoch), ("a", "1", epoch + 1), ("a", "never", epoch)):
        desk.tasks.give_up(member, m.GiveUp(name, said))
    assert desk.given() == []
    assert desk.tasks.finish("a", m.Finished("1", epoch, b""))


@pytest.mark.parametrize(("lost", "order"), [(True, "2456"), (False, "5624")])
def test_tasks_of_a_lost_member_come_first_and_of_one_that_left_last(lost: bool, order: str) -> None:
    desk = Desk()
    desk.tasks.take("a", 4)
    desk.offer("123456")
    for name in "13":
        assert desk.tasks.finish("a", m.Finished(name, desk.epoch("a", name), b""))
    desk.tasks.drop("a", lost=lost)
    assert len(desk.tasks) == 4
    desk.given()
    desk.tasks.take("b", 9)
    assert desk.given() == [("b", name) for name in order]
    assert not desk.returned
    desk.tasks.remind("a")
    assert desk.given() == [], "should it come back, it holds nothing"


def test_returning_member_is_reminded_of_its_tasks_and_gets_no_more_unasked() -> None:
    desk = Desk()
    desk.tasks.take("a", 3)
    desk.offer("12")
    before = desk.told.copy()
    desk.tasks.cut("a")
    desk.told.clear()
    desk.tasks.remind("a")
    assert desk.told == before
    desk.told.clear()
    desk.offer("3")
    assert desk.given() == []


def test_tasks_for_one_member_come_in_order_as_it_has_room() -> None:
    desk = Desk()
    desk.offer("123", member="a")
    desk.offer("9")
    desk.tasks.take("a", 2)
    assert desk.given() == [("a", "1"), ("a", "2")]
    desk.tasks.withdraw("3")
    desk.offer("4", member="a")
    desk.tasks.take("a", 2)
    assert desk.given() == [("a", "4"), ("a", "9")]


def test_a_result_said_twice_is_accepted_as_long_as_it_is_remembered() -> None:
    desk = Desk(results=2)
    desk.tasks.take("a", 2)
    desk.offer("12")
    said = [m.Finished(name, desk.epoch("a", name), b"") for name in "12"]
    desk.tasks.take("a", 1)
    desk.offer("3")
    said.append(m.Finished("3", desk.epoch("a", "3"), b""))
    assert all(desk.tasks.finish("a", one) for one in said)
    assert not any(desk.tasks.finish("a", one) for one in said[1:])
    with pytest.raises(Refusal):
        desk.tasks.finish("a", said[0])
    assert desk.told[-2:] == [("a", m.Accepted(one.task, one.epoch)) for one in said[1:]]
