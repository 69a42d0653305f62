"""Barriers of the coordinator: their messages, refused parties, and the time for which a broken barrier is
remembered."""

from __future__ import annotations

import pytest

from treadle.primitives.coordinator import CoordinatorLimits, Timing
from treadle.primitives.coordinator import messages as m
from treadle.primitives.coordinator.barriers import Barriers
from treadle.primitives.coordinator.component import Refusal


class Desk:
    """All barriers, with the messages to each member since the last request."""

    def __init__(self, barriers: int = 10) -> None:
        self.told: list[tuple[str, m.ToMember]] = []
        self.barriers = Barriers(
            lambda member, message: self.told.append((member, message)),
            Timing(broken=30.0),
            CoordinatorLimits(barriers=barriers),
        )

    def wait(self, member: str, generation: int = 0, parties: int = 3, name: str = "b") -> list[tuple[str, m.ToMember]]:
        self.barriers.wait(member, m.Wait(name, parties, generation))
        return self.heard()

    def drop(self, member: str, now: float = 0.0) -> list[tuple[str, m.ToMember]]:
        self.barriers.drop(member, now)
        return self.heard()

    def heard(self) -> list[tuple[str, m.ToMember]]:
        told, self.told = self.told, []
        return told


def broken(member: str, generation: int, *lost: str) -> list[tuple[str, m.ToMember]]:
    return [(member, m.Broken("b", generation, lost))]


def test_party_that_is_ahead_releases_only_waiting_parties() -> None:
    desk = Desk()
    assert desk.wait("a", 4) == []
    assert desk.wait("b", 5) == [("a", m.Released("b", 4))]
    assert desk.wait("c", 6) == [("b", m.Released("b", 5))]
    assert desk.wait("a", 5) == [("a", m.Released("b", 5))]
    assert desk.wait("a", 6) == []
    assert desk.wait("b", 6) == [(party, m.Released("b", 6)) for party in "abc"]


def test_a_party_that_is_behind_is_let_through_and_does_not_count_as_waiting() -> None:
    desk = Desk()
    assert desk.wait("a", 4, parties=2) == []
    assert desk.wait("b", 3, parties=2) == [("b", m.Released("b", 3))]
    assert desk.wait("a", 4, parties=2) == []
    assert desk.barriers.count("b") == (1, 2)
    assert len(desk.wait("b", 4, parties=2)) == 2


def test_wait_for_an_impossible_generation_is_refused() -> None:
    desk = Desk()
    desk.wait("a", 1)
    for member, generation in (("a", 2), ("b", 3), ("a", -1)):
        with pytest.raises(Refusal):
            desk.wait(member, generation)
    assert desk.barriers.count("b") == (1, 3)


def test_member_at_a_broken_barrier_learns_of_it_and_does_not_become_a_party() -> None:
    desk = Desk()
    for party in "ab":
        desk.wait(party)
    assert desk.drop("a") == broken("b", 0, "a")
    assert desk.wait("b") == broken("b", 0, "a")
    assert desk.wait("c") == broken("c", 0, "a")
    assert desk.wait("a") == broken("a", 0, "a"), "a lost one that is back too"
    assert desk.drop("c") == []
    assert desk.drop("b") == []
    assert desk.wait("c") == broken("c", 0, "a", "b")


def test_returning_lost_party_is_notified_even_if_all_parties_are_known() -> None:
    desk = Desk()
    for party in "ab":
        desk.wait(party, parties=2)
    desk.drop("a")
    assert desk.wait("a", 1, parties=2) == broken("a", 1, "a")
    with pytest.raises(Refusal):
        desk.wait("c", 1, parties=2)


def test_a_party_that_does_not_wait_hears_of_the_loss_when_it_comes() -> None:
    desk = Desk()
    for party in "ab":
        desk.wait(party, parties=2)
    assert desk.drop("a") == []
    assert desk.wait("b", 1, parties=2) == broken("b", 1, "a")


def test_a_broken_barrier_is_forgotten_after_its_time_and_at_once_without_parties() -> None:
    desk = Desk()
    for number, now in enumerate((0.0, 5.0)):
        for party in "ab":
            desk.wait(f"{party}{number}", name=f"b{number}")
        desk.drop(f"a{number}", now)
    assert desk.barriers.wakes_at() == 30.0
    desk.drop("b0", 20.0)
    assert desk.barriers.wakes_at() == 30.0, "the first loss counts"
    desk.barriers.forget(29.9)
    assert len(desk.barriers) == 2
    desk.barriers.forget(30.0)
    assert (len(desk.barriers), desk.barriers.wakes_at()) == (1, 35.0)
    desk.barriers.forget(35.0)
    assert (len(desk.barriers), desk.barriers.wakes_at()) == (0, None)
    desk.drop("b1")
    desk.wait("a", parties=1)
    desk.drop("a")
    assert (len(desk.barriers), desk.barriers.wakes_at()) == (0, None)


def test_the_one_unused_for_longest_makes_room_and_none_that_is_in_use() -> None:
    desk = Desk(barriers=2)
    for name in ("old", "newer"):
        desk.wait("a", parties=1, name=name)
    desk.wait("a", 1, parties=1, name="old")
    desk.wait("a", parties=1, name="third")
    assert [desk.barriers.count(name) for name in ("old", "newer", "third")] == [(0, 1), None, (0, 1)]
    for name in ("fourth", "fifth"):
        desk.wait("a", parties=2, name=name)
    with pytest.raises(Refusal):
        desk.wait("a", parties=1, name="sixth")
    assert len(desk.barriers) == 2


def test_a_broken_one_makes_no_room() -> None:
    desk = Desk(barriers=1)
    for party in "ab":
        desk.wait(party, parties=2)
    desk.drop("a")
    with pytest.raises(Refusal):
        desk.wait("c", parties=1, name="other")
    assert desk.wait("b", 1, parties=2) == broken("b", 1, "a")


def test_member_that_waits_at_a_later_generation_gets_earlier_releases_again() -> None:
    desk = Desk()
    for party in "ab":
        desk.wait(party, parties=2)
    assert desk.wait("a", 1, parties=2) == []
    assert desk.wait("a", 0, parties=2) == [("a", m.Released("b", 0))]
    assert desk.barriers.count("b") == (1, 2)
    assert len(desk.wait("b", 1, parties=2)) == 2
