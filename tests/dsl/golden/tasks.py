"""Functions the golden documents name."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

FACTOR = 2


def double(record: int) -> int:
    return FACTOR * record


def scale(record: int, factor: int) -> int:
    return factor * record


def add(a: int, b: int) -> int:
    return a + b


def total(values: Iterator[int]) -> int:
    return sum(values)


def with_context(record: int, context: Any) -> Any:
    return context, record


def pieces(record: int) -> Iterator[int]:
    yield record


def yields(record: int):  # type: ignore[no-untyped-def]
    yield record


def text(record: int) -> str:
    return str(record)


async def awaited(record: int) -> int:
    return record


async def streamed(record: int) -> AsyncIterator[int]:
    yield record
