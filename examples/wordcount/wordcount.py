"""Functions of the word count example."""

from __future__ import annotations

import re
from collections.abc import Iterator

Count = tuple[str, int]
_word = re.compile(r"[^\W\d_]+")


def tokenize(line: str) -> Iterator[Count]:
    """A pair for every word of a line."""
    for word in _word.findall(line):
        yield word.lower(), 1


def add(a: int, b: int) -> int:
    return a + b


def _rank(count: Count) -> tuple[int, str]:
    return -count[1], count[0]


def most_frequent(counts: Iterator[Count], most: int) -> list[Count]:
    """The partition's most frequent words, as one record. Ties are in alphabetical order."""
    return sorted(counts, key=_rank)[:most]


def merge(a: list[Count], b: list[Count]) -> list[Count]:
    """Two rankings as one. They share no word, since equal words meet in one partition."""
    return sorted([*a, *b], key=_rank)


def cut(ranking: list[Count], most: int) -> list[Count]:
    return ranking[:most]


def as_records(ranking: list[Count]) -> Iterator[dict[str, str | int]]:
    for word, count in ranking:
        yield {"word": word, "count": count}
