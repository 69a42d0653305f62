"""Functions of the join example."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

Row = dict[str, str]


def by_id(row: Row) -> tuple[int, Row]:
    return int(row["id"]), row


def match(_: int, values: Mapping[str, Iterator[Row]]) -> list[tuple[str, str]]:
    """(name, city) of every pair: an inner join."""
    names = [row["name"] for row in values["people"]]
    return [(name, visit["city"]) for visit in values["visits"] for name in names]


def rows(joined: tuple[int, list[tuple[str, str]]]) -> Iterator[tuple[int, str, str]]:
    key, pairs = joined
    for name, city in pairs:
        yield key, name, city
