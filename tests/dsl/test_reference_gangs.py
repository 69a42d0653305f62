"""The interpreter's gangs: partitions that run at the same time, with channels between them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from dsl.reference_cases import interpret, items, values

from treadle.dsl.reference import ReferenceFailure
from treadle.primitives.channels import Barrier, BroadcastChannel, ReduceChannel, ShuffleChannel
from treadle.primitives.errors import UsageError


def gang(size: int, function: str = "f", **more: Any) -> dict[str, Any]:
    given = {"range": 2 * size, "partitions": size}
    return {"type": "map", "input": given, "uses": f"m:{function}", "per": "partition", "gang": size, **more}


def everything(records: Iterator[int]) -> list[Any]:
    mine = list(records)
    Barrier("begin").wait()
    with ReduceChannel("sum", lambda a, b: a + b) as channel:
        total = channel.reduce(sum(mine))
    with BroadcastChannel("total") as channel:
        if total is None:
            total = channel.receive()
        else:
            channel.send(total)
    with ShuffleChannel("parity", "both") as channel:
        pieces = channel.send_receive(mine, lambda number: number)
    return [total, sorted(number for piece in pieces for number in piece)]


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_members_of_a_gang_use_all_four_collectives(size: int) -> None:
    found = values(interpret({"g": gang(size)}, {"f": everything}), "g")
    numbers = list(range(2 * size))
    assert [total for ((total, _),) in found] == [sum(numbers)] * size
    assert sorted(number for ((_, mine),) in found for number in mine) == numbers


@pytest.mark.parametrize("root", [0, 3])
def test_values_are_folded_along_a_tree_of_the_ranks(root: int) -> None:
    def f(records: Iterator[int]) -> list[Any]:
        first = str(min(records) // 2)
        with ReduceChannel("text", lambda a, b: f"({a}{b})", root=root) as channel:
            return [channel.all_reduce(first), channel.reduce(first) is not None]

    found = values(interpret({"g": gang(5)}, {"f": f}), "g")
    meant = "((0((13)4))2)" if root == 0 else "((3((41)2))0)"
    assert found == [[[meant, rank == root]] for rank in range(5)]


def test_channel_is_used_again_and_again() -> None:
    def steps(records: Iterator[int]) -> list[int]:
        value = sum(records)
        seen = []
        with ReduceChannel("sum", max) as up, BroadcastChannel("sum") as down:
            for _ in range(20):
                best = up.reduce(value)
                if best is None:
                    best = down.receive()
                else:
                    down.send(best)
                seen.append(best)
                value += 1
        return seen

    found = values(interpret({"g": gang(3)}, {"f": steps}), "g")
    assert found == [[[9 + step for step in range(20)]]] * 3


def test_channel_delivers_sent_values_when_it_is_never_closed() -> None:
    def sends(records: Iterator[int], context: Any) -> Any:
        channel = BroadcastChannel("x")
        return channel.send("hello") if context.partition == 0 else channel.receive()

    assert values(interpret({"g": gang(2)}, {"f": sends}), "g") == [[None], ["hello"]]


def test_gang_is_attempted_as_one() -> None:
    calls: list[tuple[int, int]] = []

    def fails_once(records: Iterator[int], context: Any) -> int:
        calls.append((context.partition, context.attempt))
        if context.attempt == 1 and context.partition == 1:
            raise ValueError("not yet")
        Barrier("all").wait()
        return sum(records)

    found = interpret({"g": gang(2, retry={"maximumAttempts": 2})}, {"f": fails_once})
    assert values(found, "g") == [[1], [5]]
    assert sorted(calls) == [(0, 1), (0, 2), (1, 1), (1, 2)]


def test_failure_of_a_gang_is_that_of_its_first_cause() -> None:
    def fails(records: Iterator[int], context: Any) -> None:
        if context.partition == 1:
            raise ValueError("never")
        Barrier("all").wait()

    with pytest.raises(ReferenceFailure, match=r"g\[1\]: ValueError: never"):
        interpret({"g": gang(3)}, {"f": fails})


def test_barrier_of_a_member_that_has_ended_is_not_passed() -> None:
    def some(records: Iterator[int], context: Any) -> None:
        if context.partition:
            Barrier("all").wait()

    with pytest.raises(ReferenceFailure, match="lost a member that has ended"):
        interpret({"g": gang(2, retry={"maximumAttempts": 1})}, {"f": some})


def test_gang_of_other_than_its_partitions_has_no_meaning() -> None:
    stage = {**gang(2), "input": items(1, 2, 3, partitions=3)}
    with pytest.raises(ReferenceFailure, match="`gang: 2` needs exactly 2"):
        interpret({"g": stage}, {"f": everything})


def test_functions_outside_of_a_gang_have_no_channels() -> None:
    with pytest.raises(ReferenceFailure) as failed:
        interpret({"g": {**gang(2), "gang": None}}, {"f": everything})
    assert isinstance(failed.value.error, UsageError)
