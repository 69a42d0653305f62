"""The measured work, its arrays and its right answers, the same for all rivals.

Elements are small whole numbers in float64, so that every sum is exact in any order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Operation = Literal["broadcast", "reduce", "shuffle", "barrier", "round trip"]
Array = NDArray[Any]


@dataclass(frozen=True)
class Task:
    """One collective. `size`: bytes of an array; for a shuffle the number of integers in all; for a ping bytes of the
    message."""

    operation: Operation
    size: int = 0
    rounds: int = 3
    warm_up: int = 1

    def length(self, seat: int, members: int) -> int:
        """The number of elements in a seat's array."""
        if self.operation == "shuffle":
            return self.size * (seat + 1) // members - self.size * seat // members
        return math.ceil(self.size / 8)  # float64; 0 for a barrier


def source(task: Task, seat: int, members: int) -> Array:
    """A seat's input: float64 `0, 1, 2, ...` from its seat on; for a shuffle random int64 below 2**62."""
    length = task.length(seat, members)
    if task.operation == "shuffle":
        return np.random.default_rng([task.size, seat]).integers(0, 2**62, length)
    return np.arange(seat, seat + length, dtype=np.float64)


def advance(value: Array) -> None:
    """Change the array for the next round, so that data kept from the last one does not help."""
    value += 1


def total(value: Array) -> float:
    """Reads the whole array once. A receiver of a broadcast does this within the measured time."""
    return float(value.sum())


def check_broadcast(task: Task, round: int, read: float) -> None:
    """`read`: the total of the received array."""
    length = task.length(0, 1)
    _check(read == length * (length - 1) / 2 + length * round, f"a broadcast of {task.size} bytes: total {read}")


def check_reduce(task: Task, members: int, round: int, result: Array) -> bool:
    """Raises unless the result is the element-wise sum of all members' arrays; otherwise returns True."""
    shift = members * (members - 1) // 2 + members * round
    expected = np.arange(task.length(0, 1), dtype=np.float64) * members + shift
    _check(np.array_equal(result, expected), f"a reduce of {task.size} bytes over {members} members")
    return True


def split(value: Array, members: int) -> list[Array]:
    """One array for each seat: integers go to their congruent seat."""
    seats = (value % members).astype(np.int16)
    order = np.argsort(seats, kind="stable")
    return np.split(value[order], np.searchsorted(seats[order], np.arange(1, members)))


def shuffled(value: Array, seat: int, members: int) -> tuple[int, int]:
    """Count and sum (modulo 2**64) of a seat's integers, all of which must belong there."""
    _check(bool((value % members == seat).all()), f"a shuffle: seat {seat} received what is not its own")
    return len(value), int(value.sum(dtype=np.uint64))


def check_shuffle(task: Task, members: int, round: int, received: list[tuple[int, int]]) -> None:
    """Nothing may be lost or doubled."""
    brought = [source(task, seat, members) + round for seat in range(members)]
    count = sum(map(len, brought))
    summed = sum(int(value.sum(dtype=np.uint64)) for value in brought) % 2**64
    got = (sum(count for count, _ in received), sum(part for _, part in received) % 2**64)
    _check(got == (count, summed), f"a shuffle of {task.size} integers over {members} members")


def _check(right: bool, what: str) -> None:
    if not right:
        raise AssertionError(f"wrong answer: {what}")
