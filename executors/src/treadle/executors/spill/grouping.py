"""Groups of more records than memory holds, in the order of their keys' first occurrence.

Records are cut by a digit of their key's hash into buckets that fit (Grace hash join: Kitsuregawa, Tanaka and Moto-oka,
New Generation Computing 1, 1983), a bucket that does not is cut again by the next digit. In a bucket every key's first
position is known, so it leaves a run of records in the order of their keys' first positions; merging the runs puts the
records of every key next to each other, the keys in the order in which they occurred. A key is met as a stretch of
records and never needs to fit, however many it has. Nothing but raw records is written.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import chain, groupby
from operator import itemgetter
from typing import Any

from treadle.primitives.hashing import hash_sequence
from treadle.primitives.keys import Key

from ..operations.groups import identities
from .room import Extent, Room, SpillFile
from .sizes import memory_of
from .sorting import Block, Sorter

_BITS = 4
_BUCKETS = 1 << _BITS
_LEVELS = 8
"""Digits of the hash that are used, from its top: a shuffle takes its targets from the whole, mostly from its end."""
_POSITION_BYTES = 48
_NOTHING: Any = object()

Group = tuple[Key, Iterator[list[Any]]]
"""(the first of its equal keys, its values a few at a time), to be used before the next group is asked for."""


class Grouper:
    """Takes records in order, gives their groups."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._next = 0
        self._buckets = _Buckets(room, 0)

    def add(self, keys: Sequence[Key], values: Sequence[Any]) -> None:
        """Records after all those before; the keys are canonical. Raises DataError for what cannot be pickled."""
        self._buckets.add(range(self._next, self._next + len(keys)), keys, values)
        self._next += len(keys)

    def groups(self) -> Iterator[Group]:
        """Called once, at the end."""
        sorter = Sorter("objects", self._room)
        self._buckets.move_to(sorter)
        for pieces in stretches(sorter.blocks()):
            first = next(pieces)
            yield first[0][0], map(_values, chain([first], pieces))


def sorted_groups(blocks: Iterable[tuple[Sequence[Key], Sequence[Any]]]) -> Iterator[Group]:
    """The groups of records whose equal keys already stand together: (canonical keys, values) a block at a time."""
    named = ((identities(keys), list(zip(keys, values, strict=True))) for keys, values in blocks)
    for pieces in stretches(named):
        first = next(pieces)
        yield first[0][0], map(_values, chain([first], pieces))


def stretches(blocks: Iterable[tuple[Sequence[Hashable], Sequence[Any]]]) -> Iterator[Iterator[Sequence[Any]]]:
    """The records of equal names that stand together, as pieces; what is left of a stretch is passed over."""
    for _, pieces in groupby(_pieces(blocks), key=itemgetter(0)):
        yield (records for _, records in pieces)


def _pieces(blocks: Iterable[tuple[Sequence[Hashable], Sequence[Any]]]) -> Iterator[tuple[Hashable, Sequence[Any]]]:
    for names, records in blocks:
        start = 0
        for name, same in groupby(names):
            stop = start + sum(1 for _ in same)
            yield name, records[start:stop]
            start = stop


def _values(records: Sequence[tuple[Key, Any]]) -> list[Any]:
    return [value for _, value in records]


class _Bucket:
    """Records whose keys' hashes share digits, in the order of their positions."""

    def __init__(self) -> None:
        self.extents: list[Extent] = []
        self.size = 0
        self._only: Hashable = _NOTHING
        self.mixed = False
        """It has more than one key."""

    def add(self, extent: Extent, size: int, names: Sequence[Hashable]) -> None:
        self.extents.append(extent)
        self.size += size
        if self._only is _NOTHING:
            self._only = names[0]
        self.mixed = self.mixed or any(name != self._only for name in names)


class _Buckets:
    """Records at one level: in memory while they fit, then in buckets."""

    def __init__(self, room: Room, level: int) -> None:
        self._room = room
        self._level = level
        self._shift = 64 - _BITS * (level + 1)
        self._held: list[tuple[Sequence[int], Sequence[Key], Sequence[Any]]] = []
        self._size = 0
        self._file: SpillFile | None = None
        self._buckets = [_Bucket() for _ in range(_BUCKETS)]

    def add(self, positions: Sequence[int], keys: Sequence[Key], values: Sequence[Any]) -> None:
        self._held.append((positions, keys, values))
        self._size += memory_of("objects", values) + memory_of("objects", keys) + _POSITION_BYTES * len(keys)
        if self._size > self._room.size:
            self._flush()

    def move_to(self, sorter: Sorter) -> None:
        """Leave a run for each bucket."""
        if self._file is None:
            sorter.add_run([_by_first(self._held)])
            return
        self._flush()
        file = self._file
        for bucket in self._buckets:
            chunks = (file.get(extent) for extent in bucket.extents)
            if bucket.size <= self._room.size or self._level + 1 == _LEVELS:
                sorter.add_run([_by_first(chunks)])
            elif not bucket.mixed:
                sorter.add_run(_of_one_key(chunks))
            else:
                deeper = _Buckets(self._room, self._level + 1)
                for chunk in chunks:
                    deeper.add(*chunk)
                deeper.move_to(sorter)
        file.close()

    def _flush(self) -> None:
        if not self._held:
            return
        positions, keys, values = ([one for some in column for one in some] for column in zip(*self._held, strict=True))
        self._file = self._file or self._room.file()
        size, count = self._size, len(keys)
        self._held, self._size = [], 0
        for bucket, places in zip(self._buckets, self._places(keys), strict=True):
            if places:
                theirs = [keys[place] for place in places]
                chunk = [[positions[place] for place in places], theirs, [values[place] for place in places]]
                bucket.add(self._file.put(chunk), size * len(places) // count, identities(theirs))

    def _places(self, keys: Sequence[Key]) -> list[list[int]]:
        """For each bucket the indices of its keys."""
        places: list[list[int]] = [[] for _ in range(_BUCKETS)]
        found = hash_sequence(keys)
        for index, value in enumerate(found if isinstance(found, list) else found.tolist()):
            places[value >> self._shift & _BUCKETS - 1].append(index)
        return places


def _by_first(chunks: Iterable[tuple[Sequence[int], Sequence[Key], Sequence[Any]]]) -> Block:
    """(first position of each record's key, records) in that order; of a key's records only the first has the key."""
    groups: dict[Hashable, tuple[int, list[tuple[Key, Any]]]] = {}
    for positions, keys, values in chunks:
        for name, position, key, value in zip(identities(keys), positions, keys, values, strict=True):
            if name in groups:
                groups[name][1].append((None, value))
            else:
                groups[name] = (position, [(key, value)])
    firsts = [first for first, records in groups.values() for _ in records]
    return firsts, [record for _, records in groups.values() for record in records]


def _of_one_key(chunks: Iterable[tuple[Sequence[int], Sequence[Key], Sequence[Any]]]) -> Iterator[Block]:
    """The same for records of one key, which need not fit."""
    first: int | None = None
    for positions, keys, values in chunks:
        records: list[tuple[Key, Any]] = [(None, value) for value in values]
        if first is None:
            first, records[0] = positions[0], (keys[0], values[0])
        yield [first] * len(records), records
