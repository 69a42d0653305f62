"""Groups of more records than memory holds, in the order of their keys' first occurrence.

Records are grouped in memory as they arrive. When memory is full, the groups are divided into buckets by a digit of the
keys' hashes (Grace hash join: Kitsuregawa, Tanaka and Moto-oka, New Generation Computing 1, 1983). A bucket that does
not fit is divided again by the next digit. A bucket that fits knows the first position of each of its keys, and gives a
sorted run of groups in that order. Merging the runs joins the pieces of each key and restores the order of first
occurrence. A bucket with a single key is already such a run. A key is thus read in pieces and need not fit into memory,
however many records it has. Only unmodified records are written.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import chain, groupby, starmap
from operator import itemgetter
from typing import Any, NamedTuple

from treadle.primitives.shuffling.hashing import hash_sequence
from treadle.primitives.shuffling.keys import Key, identities

from .memory_budget import Extent, MemoryBudget, SpillFile
from .size_estimate import memory_of
from .sorting import Block, Sorter

_DIGIT = 7
"""Maximum bits of the hash in one digit."""
_BITS = 48
"""Number of used bits, from the top of the hash. A shuffle uses the whole hash for its targets, mostly the low bits."""
_HEAVY = 8
"""A key with at least this fraction of the first records gets its own bucket."""
_GROUP_BYTES = 240
"""Memory of a group without its key and values: its list, its position, its place in a dict."""
_NOTHING: Any = object()

Group = tuple[Key, Iterator[list[Any]]]
"""(the first of its equal keys, its values in pieces). Consume it before requesting the next group."""
_Known = tuple[Any, ...]
"""(position of the key's first record, key, value), or (position, key, None, [several values]). Very many keys with one
value thus need no list each."""


class Grouper:
    """Takes records in order, returns their groups."""

    def __init__(self, room: MemoryBudget) -> None:
        self._room = room
        self._next = 0
        self._all = _Level(room, 0, _DIGIT)

    def add(self, keys: Sequence[Key], values: Sequence[Any]) -> None:
        """Add records after the earlier ones; the keys are canonical. Raises DataError for records that cannot be
        pickled."""
        if keys:
            self._all.add_records(self._next, keys, values)
            self._next += len(keys)

    def groups(self) -> Iterator[Group]:
        """Called once, at the end."""
        if not self._all.spilled:
            yield from ((known[1], iter((_values(known),))) for known in self._all.held.groups.values())
            return
        sorter = Sorter("objects", self._room)
        self._all.move_to(sorter)
        entries = chain.from_iterable(starmap(zip, sorter.blocks()))
        yield from _groups((first, known[1], _values(known)) for first, known in entries)


def sorted_groups(blocks: Iterable[tuple[Sequence[Key], Sequence[Any]]]) -> Iterator[Group]:
    """The groups of records whose equal keys are already adjacent: (canonical keys, values) in blocks."""
    return _groups(_stretches(blocks))


def _stretches(blocks: Iterable[tuple[Sequence[Key], Sequence[Any]]]) -> Iterator[tuple[Hashable, Key, list[Any]]]:
    """(identity of the key, key, its adjacent values in a block)."""
    for keys, values in blocks:
        start = 0
        for name, same in groupby(identities(keys)):
            stop = start + len(list(same))
            yield name, keys[start], list(values[start:stop])
            start = stop


def _groups(pieces: Iterator[tuple[Hashable, Key, list[Any]]]) -> Iterator[Group]:
    """Adjacent pieces with the same name form a group."""
    for _, same in groupby(pieces, key=itemgetter(0)):
        some = iter(same)
        _, key, values = next(some)
        yield key, chain((values,), map(itemgetter(2), some))


def _values(known: _Known) -> list[Any]:
    return known[3] if len(known) > 3 else [known[2]]


def _joined(known: _Known, values: list[Any]) -> _Known:
    """The group with more values."""
    if len(known) > 3:
        known[3].extend(values)
        return known
    return (known[0], known[1], None, [known[2], *values])


class _Held:
    """Values by key, in the order of the keys' first occurrence, and an estimate of their memory."""

    def __init__(self) -> None:
        self.groups: dict[Hashable, _Known] = {}
        self.count = 0
        """Number of values."""
        self.size = 0

    def add(self, start: int, keys: Sequence[Key], values: Sequence[Any]) -> None:
        """Add records; the first has the position `start`."""
        groups, before = self.groups, len(self.groups)
        names, positions = identities(keys), range(start, start + len(keys))
        for name, position, key, value in zip(names, positions, keys, values, strict=True):
            known = groups.get(name)
            if known is None:
                groups[name] = (position, key, value)
            elif len(known) > 3:
                known[3].append(value)
            else:
                groups[name] = _joined(known, [value])
        self.count += len(keys)
        self.size += memory_of("objects", values)
        self.size += (len(groups) - before) * (memory_of("objects", keys) // len(keys) + _GROUP_BYTES)

    def add_block(self, entries: Sequence[_Known], count: int, size: int) -> None:
        """Add groups, or later parts of them, with `count` values that take `size` bytes of memory."""
        groups = self.groups
        for name, known in zip(identities([known[1] for known in entries]), entries, strict=True):
            there = groups.setdefault(name, known)
            if there is not known:
                groups[name] = _joined(there, _values(known))
        self.count += count
        self.size += size


class _Stored(NamedTuple):
    """A block of a bucket."""

    extent: Extent
    values: int
    """Number of values."""
    size: int
    """Bytes of memory that the block takes."""


class _Bucket:
    """Groups, in parts, of keys whose hashes share digits, as blocks of a file."""

    def __init__(self) -> None:
        self.blocks: list[_Stored] = []
        self.size = 0
        self.first = 0
        """Position of its first record."""
        self._only: Hashable = _NOTHING
        self.mixed = False
        """It has more than one key."""

    def meet(self, groups: Sequence[tuple[Hashable, _Known]]) -> None:
        """Record the keys that are about to be added after the earlier ones; every key occurs once."""
        if self._only is _NOTHING:
            self._only, (self.first, *_) = groups[0]
        self.mixed = self.mixed or len(groups) > 1 or groups[0][0] != self._only

    def add(self, block: _Stored) -> None:
        self.blocks.append(block)
        self.size += block.size


class _Level:
    """Groups in memory while they fit, then in buckets by one digit of the hash."""

    def __init__(self, room: MemoryBudget, used: int, bits: int) -> None:
        """The digit has `bits` bits, after the first `used` ones."""
        self._room = room
        self._used = used + bits
        self._bits = bits
        self.held = _Held()
        self._file: SpillFile | None = None
        self._buckets = [_Bucket() for _ in range(1 << bits)]
        self._heavy: dict[Hashable, int] = {}
        """Bucket number of each key that has its own bucket."""

    @property
    def spilled(self) -> bool:
        return self._file is not None

    def add_records(self, start: int, keys: Sequence[Key], values: Sequence[Any]) -> None:
        self.held.add(start, keys, values)
        self._keep_within()

    def move_to(self, sorter: Sorter) -> None:
        """Pass to the sorter a run of groups for buckets that fit, and a stream for keys that do not."""
        self._flush()
        file = self._file
        assert file is not None, "nothing to move"
        small = [bucket for bucket in self._buckets if self._fits(bucket)]
        for together in _together(small, self._room.size):
            sorter.add_run(self._groups_of(together, file))
        large = [bucket for bucket in self._buckets if not self._fits(bucket)]
        for bucket in large:
            if bucket.mixed:
                self._cut_again(bucket, file).move_to(sorter)
            else:
                sorter.add_stream(_of_one_key(bucket, file))
        if all(bucket.mixed for bucket in large):
            file.close()

    def _fits(self, bucket: _Bucket) -> bool:
        return bucket.size <= self._room.size or (bucket.mixed and self._used >= _BITS)

    def _groups_of(self, buckets: Sequence[_Bucket], file: SpillFile) -> Iterator[Block]:
        held = _Held()
        for extent, count, size in chain.from_iterable(bucket.blocks for bucket in buckets):
            held.add_block(file.get(extent)[1], count, size)
        return _blocks(sorted(held.groups.values(), key=itemgetter(0)), _most(self._room, held))

    def _cut_again(self, bucket: _Bucket, file: SpillFile) -> _Level:
        bits = (2 * bucket.size // self._room.size).bit_length()
        deeper = _Level(self._room, self._used, min(bits, _DIGIT))
        for extent, count, size in bucket.blocks:
            deeper.held.add_block(file.get(extent)[1], count, size)
            deeper._keep_within()
        return deeper

    def _keep_within(self) -> None:
        if self.held.size > self._room.size:
            self._flush()

    def _flush(self) -> None:
        held, self.held = self.held, _Held()
        if not held.count:
            return
        if self._file is None:
            self._file = self._room.file()
            self._give_heavy_ones_their_own(held)
        each, most = held.size // held.count, _most(self._room, held)
        for bucket, groups in zip(self._buckets, self._cut(held), strict=True):
            if groups:
                bucket.meet(groups)
            for firsts, entries in _blocks((known for _, known in groups), most):
                count = sum([len(known[3]) if len(known) > 3 else 1 for known in entries])
                bucket.add(_Stored(self._file.put([firsts, entries]), count, each * count))

    def _give_heavy_ones_their_own(self, held: _Held) -> None:
        """Give frequent keys their own buckets. These are the first records, so no other bucket holds such a key."""
        for name, known in held.groups.items():
            if len(_values(known)) * _HEAVY >= held.count:
                self._heavy[name] = len(self._buckets)
                self._buckets.append(_Bucket())

    def _cut(self, held: _Held) -> list[list[tuple[Hashable, _Known]]]:
        """The groups for each bucket, with the identities of their keys."""
        cut: list[list[tuple[Hashable, _Known]]] = [[] for _ in self._buckets]
        found = hash_sequence([known[1] for known in held.groups.values()])
        hashes = found if isinstance(found, list) else found.tolist()
        shift, mask, heavy = 64 - self._used, (1 << self._bits) - 1, self._heavy
        for value, group in zip(hashes, held.groups.items(), strict=True):
            cut[heavy.get(group[0], value >> shift & mask) if heavy else value >> shift & mask].append(group)
        return cut


def _together(buckets: Iterable[_Bucket], size: int) -> Iterator[list[_Bucket]]:
    """Combine buckets that fit into memory together."""
    some: list[_Bucket] = []
    for bucket in buckets:
        if some and sum(one.size for one in (*some, bucket)) > size:
            yield some
            some = []
        some.append(bucket)
    if some:
        yield some


def _most(room: MemoryBudget, held: _Held) -> int:
    """Number of values to read at once later."""
    return max(1, held.count * room.chunk // max(held.size, 1))


def _blocks(groups: Iterable[_Known], most: int) -> Iterator[Block]:
    """Blocks of at most `most` values: (first positions, pieces of groups). Larger groups are split."""
    entries: list[_Known] = []
    count = 0
    for known in groups:
        for piece in (known,) if len(known) == 3 else _pieces(known, most):
            size = 1 if len(piece) == 3 else len(piece[3])
            if count + size > most:
                yield [one[0] for one in entries], entries
                entries, count = [], 0
            entries.append(piece)
            count += size
    if entries:
        yield [one[0] for one in entries], entries


def _pieces(known: _Known, most: int) -> Iterator[_Known]:
    first, key, _, values = known
    return ((first, key, None, values[start : start + most]) for start in range(0, len(values), most))


def _of_one_key(bucket: _Bucket, file: SpillFile) -> Iterator[Block]:
    entries = (file.get(block.extent)[1] for block in bucket.blocks)
    return (([bucket.first] * len(some), some) for some in entries)
