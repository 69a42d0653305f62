"""User functions over generated records, for tests of a real worker with little memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

TEXT = "0123456789abcdef" * 5
"""80 characters."""


def spread(number: int) -> int:
    """A permutation of 0 .. 2**32 - 1, in no visible order."""
    return number * 2_654_435_761 % (1 << 32)


def records(numbers: Iterator[int]) -> Iterator[tuple[str, str]]:
    """Pairs of about 100 encoded bytes, with distinct keys of 10 digits."""
    for number in numbers:
        yield f"{spread(number):010}", f"{TEXT}{number:010}"


def by_first_digits(record: Any) -> str:
    """About 430,000 keys."""
    return str(record[0][:6])


def everything(_record: Any) -> int:
    return 0


def count(_key: Any, values: Iterator[Any]) -> tuple[int, int]:
    """(values, sum of the last digits)."""
    number = total = 0
    for _, text in values:
        number += 1
        total += int(text[-1])
    return number, total


def longer(left: Any, right: Any) -> Any:
    """The greater of two texts."""
    return max(left, right)


def ordered(values: Iterator[Any]) -> tuple[int, bool]:
    """(records, whether their keys ascend)."""
    number, last, fine = 0, "", True
    for key, _ in values:
        number += 1
        fine, last = fine and last <= key, key
    return number, fine


def seen(records: Iterator[Any]) -> int:
    """Counts the records, and keeps none."""
    return sum(1 for _ in records)
