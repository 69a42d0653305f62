"""Collectives between processes, over loopback and shared memory, with a real coordinator."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from primitives.channels import functions
from primitives.channels.gangs import Ended, Place, place

from treadle.primitives.channels import Barrier, BroadcastChannel
from treadle.primitives.channels.values import distribute, fold
from treadle.primitives.coordinator import tree
from treadle.primitives.errors import DataError, UsageError


@pytest.fixture(scope="module", params=["tcp", "unix", "punching"])
def here(request: pytest.FixtureRequest) -> Iterator[Place]:
    with place() as one:
        yield one.meeting(request.param)


def values(ended: list[Ended]) -> list[Any]:
    assert not [one for one in ended if one.error]
    return [one.value for one in ended]


@pytest.mark.parametrize("size", [1, 2, 6])
def test_every_member_gets_every_value_when_the_sender_changes(here: Place, size: int) -> None:
    assert values(here.run(size, functions.broadcasts_in_turn)) == [list(range(size))] * size


def test_members_that_leave_may_join_again(here: Place) -> None:
    for seat, seen in enumerate(values(here.run(3, functions.joins_again))):
        assert [one for one in seen if one in (0, 1, 2)] == [turn for turn in range(3) if turn != seat]
        shuffled = [one for one in seen if isinstance(one, list)]
        assert shuffled == [[[turn] * 3] * 3 if turn == seat else [[]] * 3 for turn in range(3)]
    assert sum(one == 3 for seen in values(here.run(3, functions.joins_again)) for one in seen) == 3


@pytest.mark.parametrize("size", [1, 2, 6])
def test_the_root_gets_the_fold_and_its_handler_too(here: Place, size: int) -> None:
    ended = values(here.run(size, functions.reductions))
    total = size * (size + 1) // 2
    assert [one for one in ended if one[0] is not None] == [(total, float(total), ["int", "ndarray"])]
    assert [one for one in ended if one[0] is None] == [(None, None, [])] * (size - 1)


@pytest.mark.parametrize(("size", "root"), [(1, 0), (2, 1), (6, 0), (6, 4)])
def test_all_members_get_the_fold_by_rank_from_the_root_on(here: Place, size: int, root: int) -> None:
    def below(seat: int, number: int) -> float:
        total = functions.share((seat + root) % size, number)
        for child in tree.children(seat, 2, size):
            total += below(child, number)
        return total

    meant = [below(0, number) for number in range(4)]
    for rank, seen in enumerate(values(here.run(size, functions.everywhere, root))):
        assert seen[::2] == meant
        assert seen[1::2] == (meant if rank == root else [None] * 4)


def test_a_member_that_alone_wants_the_result_gets_an_error(here: Place) -> None:
    first, second = values(here.run(2, functions.reduces_apart))
    assert first == "got 2"
    assert "other members do not get this result" in second


def test_sums_in_sent_memory_belong_to_their_round(here: Place) -> None:
    for own, sums in values(here.run(7, functions.repeated_sums)):
        assert own
        assert sums == [None] * 6 or sums == [7.0 * (1 + number) for number in range(6)]


@pytest.mark.parametrize("size", [1, 3])
def test_consumers_get_the_pieces_of_all_producers_in_order(here: Place, size: int) -> None:
    for rank, (records, arrays) in enumerate(values(here.run(size, functions.shuffles))):
        assert records == [[(producer, n) for n in range(6) if n % size == rank] for producer in range(size)]
        count = len(range(rank, functions.BIG, size))
        assert arrays == [[rank, count]] * size


def test_roles_decide_which_members_give_and_get(here: Place) -> None:
    ended = values(here.run(4, functions.shuffles_by_role))
    assert ended == [[[0, 2], [0, 2]], None, [[1, 3], [1, 3]], None]


def test_no_member_passes_a_barrier_before_all_have_arrived(here: Place) -> None:
    rounds = zip(*values(here.run(4, functions.barriers)), strict=True)
    for members in rounds:
        assert max(arrived for arrived, _ in members) <= min(passed for _, passed in members)


def test_computing_member_still_forwards_values_for_others(here: Place) -> None:
    sender, inner, leaf = here.start(3, functions.computes_for_long)
    roles = {"sent": sender, "computing": inner}
    sender.reached("sent")
    inner.reached("computing")
    leaf.reached("received")
    for process in roles.values():
        process.go()
    assert [one.value for one in (sender.end(), inner.end(), leaf.end())] == [None, "value", "value"]


def test_messages_are_as_few_as_promised(here: Place) -> None:
    size = 6
    counts = values(here.run(size, functions.one_of_each))
    assert sum(one["broadcast"] + one["broadcast passed on"] for one in counts) == size - 1
    assert sum(one["reduce"] for one in counts) == size - 1
    assert sum(one["shuffle"] for one in counts) == size * (size - 1)


def test_joining_takes_two_messages_with_the_coordinator_besides_hello(here: Place) -> None:
    assert values(here.run(4, functions.joins_one_channel)) == [3] * 4


@pytest.mark.parametrize(
    ("function", "error", "says"),
    [
        (functions.only_some_join, "DeadlinePassed", "1 of 2 members"),
        (functions.waits_alone_at_a_barrier, "DeadlinePassed", "1 of 2 members"),
    ],
)
def test_a_deadline_says_how_many_are_there(here: Place, function: Any, error: str, says: str) -> None:
    first, second = here.start(2, function)
    second.reached("done")
    ended = first.end()
    second.go()
    second.end()
    assert (ended.error, says in ended.message) == (error, True), ended


def test_a_receive_that_nothing_comes_to_ends_at_its_deadline(here: Place) -> None:
    assert [one.error for one in here.run(2, functions.nobody_sends)] == ["DeadlinePassed"] * 2


def test_an_error_of_the_reduce_function_is_raised_there_and_told_everywhere(here: Place) -> None:
    ended = here.run(4, functions.raises_while_reducing)
    errors = sorted(one.error for one in ended)
    assert set(errors) == {"ReduceFailed", "ValueError"}
    assert all("ValueError" in one.message for one in ended if one.error == "ReduceFailed")


def test_nothing_is_left_behind(here: Place) -> None:
    others = set(here.left_over())  # a gang that failed leaves files, which the driver removes with its folder
    assert values(here.run(3, functions.leaves_things_open)) == [(0, 0)] * 3
    assert set(here.left_over()) <= others


def test_outside_of_a_gang_channels_say_what_to_write() -> None:
    for make in (lambda: BroadcastChannel("weights"), lambda: Barrier("epoch")):
        with pytest.raises(UsageError, match="gang: n"):
            make()


def test_rows_go_where_their_hashes_say() -> None:
    kind, pieces = distribute(np.arange(10), lambda rows: rows * 7, 3)
    assert kind == "array"
    assert [piece.tolist() for piece in pieces] == [[n for n in range(10) if n * 7 % 3 == i] for i in range(3)]
    with pytest.raises(DataError, match="one integer for each row"):
        distribute(np.arange(10), lambda rows: rows / 2, 3)
    with pytest.raises(DataError, match="integer"):
        distribute(["a"], str.upper, 3)


@pytest.mark.parametrize("consumers", [1, 2, 7, 8, 9, 16, 300, 70_000])
@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint64])
def test_rows_keep_their_order_for_every_way_to_pick_them(consumers: int, dtype: type[Any]) -> None:
    rows = np.arange(-2_000, 2_000).reshape(-1, 2)
    hashes = (rows[:, 0] * 7919).astype(dtype)
    _, pieces = distribute(rows, lambda _: hashes, consumers)
    wanted: dict[int, list[list[int]]] = {}
    for one, row in zip(hashes.tolist(), rows.tolist(), strict=True):
        wanted.setdefault(one % consumers, []).append(row)
    assert {place: piece.tolist() for place, piece in enumerate(pieces) if len(piece)} == wanted
    assert len(pieces) == consumers


@pytest.mark.parametrize("size", [3, 3_000])
def test_a_fold_writes_into_its_own_memory_only(size: int) -> None:
    """It does so only for large results. A small result is another array."""
    ones, twos, large = np.ones(size), np.full(size, 2.0), size > 1_000
    assert fold(np.add, ones, [twos], owned=False) is not ones
    assert set(ones) == {1}
    threes = fold(np.add, ones, [twos], owned=True)
    assert set(threes) == {3}
    assert (threes is ones) == large
    assert fold(np.equal, twos, [ones], owned=True).dtype == bool
    assert set(fold(np.true_divide, np.full(size, 1), [np.full(size, 2)], owned=True)) == {0.5}
    room = np.empty(size)
    fours = fold(np.add, twos, [twos], owned=False, room=lambda like: room)
    assert (set(fours), set(twos)) == ({4}, {2})
    assert (fours is room) == large


@pytest.mark.parametrize("reduce", [np.add, np.maximum, np.matmul, np.subtract])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("owned", [False, True])
def test_several_values_are_folded_in_turn(reduce: Any, order: Any, owned: bool) -> None:
    random = np.random.default_rng(7)
    values = [np.asarray(random.integers(-9, 9, (150, 150)), order=order) for _ in range(4)]
    wanted = functools.reduce(reduce, values)
    kept = [value.copy() for value in values]
    left, *right = values
    np.testing.assert_array_equal(fold(reduce, left, right, owned=owned), wanted)
    assert all(np.array_equal(one, copy) for one, copy in zip(right, kept[1:], strict=True))
    assert owned or np.array_equal(left, kept[0])
