"""Seats: no gaps, a member keeps its seat while the seat exists, and changes are reported."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.primitives.coordinator.tree import Tree, children, parent

STEPS = st.tuples(st.sampled_from(["come", "come", "go", "touch", "settle"]), st.integers(0, 9))


@given(st.lists(STEPS, max_size=40))
def test_members_sit_without_gaps_and_only_those_beyond_the_new_end_move(steps: list[tuple[str, int]]) -> None:
    tree, members, before = Tree(), set[str](), list[str]()
    moved, touched = set[str](), set[str]()
    for what, number in [*steps, ("settle", 0)]:
        name = f"m{number}"
        if what == "come" and name not in members:
            tree.add(name)
            members.add(name)
        elif what == "go" and name in members:
            tree.remove(name)
            members.discard(name)
            moved.add(name)
        elif what == "touch":
            tree.touch(name)
            touched.add(name)
        elif what == "settle":
            changed, now = tree.settle(), list(tree)
            assert sorted(now) == sorted(members)
            for seat, who in enumerate(before[: len(now)]):
                assert now[seat] == who or who in moved
            differ = {
                seat for seat in range(max(len(before), len(now))) if before[seat : seat + 1] != now[seat : seat + 1]
            }
            assert changed == sorted(set(changed))
            assert differ <= set(changed)
            assert {before[seat] for seat in set(changed) - differ} <= moved | touched
            before, moved, touched = now, set(), set()
        assert len(tree) == len(members)


def test_a_claim_of_the_latest_view_comes_first_and_one_beyond_the_end_is_none() -> None:
    tree = Tree()
    for name, epoch, seat in (("x", 3, 0), ("y", 5, 0), ("beyond", 9, 4), ("last", 1, 3)):
        tree.add(name, epoch, seat)
    assert tree.settle() == [0, 1, 2, 3]
    assert list(tree) == ["y", "x", "beyond", "last"]
    tree.add("late", 9, 0)
    assert tree.settle() == [4]
    assert next(iter(tree)) == "y", "who sits has the better claim"
    tree.remove("y")
    tree.add("nobody", 0, -1)
    tree.add("back", 2, 0)
    assert tree.settle() == [0, 5]
    assert list(tree) == ["back", "x", "beyond", "last", "late", "nobody"]


def test_seat_is_resent_when_its_new_occupant_has_the_same_name() -> None:
    tree = Tree()
    for name in "abc":
        tree.add(name)
    tree.settle()
    assert tree.settle() == []
    tree.touch("b")
    tree.touch("nobody")
    assert tree.settle() == [1]
    assert tree.settle() == []
    tree.add("d")
    tree.touch("d")
    tree.remove("d")
    assert tree.settle() == []


def test_stranger_cannot_leave() -> None:
    with pytest.raises(KeyError):
        Tree().remove("nobody")


@given(st.integers(1, 40), st.integers(1, 5))
def test_every_seat_but_the_root_is_below_its_parent(size: int, fan_out: int) -> None:
    assert parent(0, fan_out) is None
    for seat in range(size):
        below = children(seat, fan_out, size)
        assert len(below) <= fan_out
        assert [parent(one, fan_out) for one in below] == [seat] * len(below)
    assert sorted(one for seat in range(size) for one in children(seat, fan_out, size)) == list(range(1, size))
