"""Groups of several inputs that do not fit into memory together: each record carries the index of its input."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ..spill.grouping import Group, Grouper, sorted_groups
from ..spill.memory_budget import Extent, MemoryBudget, SpillFile
from ..spill.size_estimate import memory_of
from ..spill.sorting import Sorter
from .record_flow import Flow, objects

Columns = Iterable[tuple[Sequence[Any], Sequence[Any]]]
"""(canonical keys, values) of an input, in pieces."""


def spilled_joint_groups(
    inputs: Sequence[Columns], room: MemoryBudget, *, by_key: bool
) -> Iterator[tuple[Any, list[Flow]]]:
    """(first key, its values in each input), in key order or in the order of first occurrence."""
    groups = _by_key(inputs, room) if by_key else _by_occurrence(inputs, room)
    for key, pieces in groups:
        flows, file = _apart(pieces, len(inputs), room)
        yield key, flows
        if file is not None:
            file.close()


def _by_key(inputs: Sequence[Columns], room: MemoryBudget) -> Iterator[Group]:
    sorter = Sorter("objects", room)
    for keys, records in _numbered(inputs):
        sorter.add(list(keys), records)
    return sorted_groups(sorter.blocks())


def _by_occurrence(inputs: Sequence[Columns], room: MemoryBudget) -> Iterator[Group]:
    grouper = Grouper(room)
    for keys, records in _numbered(inputs):
        grouper.add(keys, records)
    return grouper.groups()


def _numbered(inputs: Sequence[Columns]) -> Iterator[tuple[Sequence[Any], list[tuple[int, Any]]]]:
    for number, columns in enumerate(inputs):
        for keys, values in columns:
            yield keys, [(number, value) for value in values]


def _apart(
    pieces: Iterator[Sequence[tuple[int, Any]]], count: int, room: MemoryBudget
) -> tuple[list[Flow], SpillFile | None]:
    """A key's values by input, and the file that holds them if they do not fit: inputs are read in any order."""
    held: list[list[Any]] = [[] for _ in range(count)]
    file: SpillFile | None = None
    extents: list[list[Extent]] = [[] for _ in range(count)]
    size = 0
    for piece in pieces:
        for number, value in piece:
            held[number].append(value)
        size += memory_of("objects", piece)
        if size > room.size:
            file, size = file or room.file(), 0
            _write(file, held, extents)
    if file is None:
        return [objects(values) for values in held], None
    _write(file, held, extents)
    return [Flow("objects", map(file.get, some)) for some in extents], file


def _write(file: SpillFile, held: list[list[Any]], extents: list[list[Extent]]) -> None:
    for values, written in zip(held, extents, strict=True):
        if values:
            written.append(file.put(values))
            values.clear()
