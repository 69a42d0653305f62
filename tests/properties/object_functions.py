"""Functions of generated workflows that use shared objects: `log...` is a Journal, any other object a Counter."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from treadle.primitives.objects import merges, read, shared

from .functions import PickyError, digest, play


@shared
class Journal:
    """A state that depends on the order of all calls, and that is changed in place."""

    def __init__(self, first: int = 0) -> None:
        self.total = float(first)
        self.entries: list[list[int]] = [[]]

    @merges
    def note(self, entry: list[int]) -> int:
        self.total = self.total / 3 + sum(entry)
        self.entries[-1].append(len(entry))
        self.entries.append(entry)
        return len(self.entries)

    @read
    def get(self) -> int:
        return round(self.total) % 100

    def _value(self) -> list[Any]:
        return [self.total, self.entries[-5:], len(self.entries)]


def use(record: Any, names: Sequence[str], only: Sequence[str], context: Any) -> int:
    """Read the objects, and merge into all but those in `only`."""
    found = 0
    for name in names:
        one = getattr(context.objects, name)
        found += one.get()
        if name in only:
            continue
        if name.startswith("log"):
            one.note([digest(record), one.get()])
        else:
            one.increment(amount=digest(record) % 2)
    return found


def each(record: Any, *, names: list[str], only: list[str], context: Any) -> int:
    found = use(record, names, only, context)
    play(context)
    return digest(record) + found


def picky(record: Any, *, names: list[str], only: list[str], context: Any) -> int:
    found = use(record, names, only, context)
    play(context)
    if digest(record) % 3 == 0:
        raise PickyError("a third of all records")
    return digest(record) + found


def twice(record: Any, *, names: list[str], only: list[str], context: Any) -> Iterator[int]:
    for _ in range(2):
        yield digest(record) + use(record, names, only, context)
    play(context)


def whole(records: Iterator[Any], *, names: list[str], only: list[str], context: Any) -> int:
    found = [each(record, names=names, only=only, context=context) for record in records]
    return sum(found)


def total(values: Iterator[Any], *, names: list[str], only: list[str], context: Any) -> int:
    return whole(values, names=names, only=only, context=context)


def keyed(record: Any) -> int:
    return digest(record) % 3


def per_key(key: int, values: Iterator[Any], *, names: list[str], only: list[str], context: Any) -> int:
    return key + whole(values, names=names, only=only, context=context)
