"""A left fold for each key, for more keys than memory holds.

Memory holds the accumulators of the first keys, as many as fit. Records of all other keys are grouped on disk and
folded key by key at the end (hybrid hashing: DeWitt and others, SIGMOD 1984). An accumulator is never written: it may
be any object, and folding parts of a key separately would be a different fold.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import reduce
from itertools import chain
from operator import length_hint
from typing import Any

from treadle.primitives.encoding.read_only import ATOMS
from treadle.primitives.shuffling.folds import NOTHING
from treadle.primitives.shuffling.keys import SELF_IDENTICAL, Key, identities

from .grouping import Group, Grouper
from .memory_budget import MemoryBudget
from .size_estimate import memory_of

_ENTRY = 100
"""Bytes of a dict entry, without its key and accumulator."""
_SAMPLE = 32
_RECORDS = 4096
"""Maximum records between two measurements of keys and accumulators. The interval never exceeds the number of keys,
because the first ones may be atypical."""

Binary = Callable[[Any, Any], Any]


class Folder:
    """Takes records in order; returns (first of its equal keys, left fold of its values) in order of first
    occurrence."""

    def __init__(self, combine: Binary, room: MemoryBudget) -> None:
        self._combine = combine
        self._room = room
        self._folded: dict[Hashable, Any] = {}
        self._firsts: dict[Hashable, Key] = {}
        """Keys that differ from their identity."""
        self._others: Grouper | None = None
        self._each = self._unseen = 0
        """Bytes of a key with its accumulator at the last measurement, and records until the next one."""

    def add(self, keys: Sequence[Key], values: Sequence[Any]) -> None:
        """Add records after the earlier ones; the keys are canonical. Raises the errors of `combine`."""
        names = identities(keys)
        if self._others is None:
            self._fold(names, keys, values)
            self._keep_within(names[:: -(-len(names) // _SAMPLE) or 1], len(names))
        else:
            self._fold_held(names, keys, values, self._others)

    def add_pairs(self, records: Sequence[Any]) -> int:
        """Fold leading records as long as they are tuples (key, value) that need no conversion.

        Returns their number; pass the rest to `add`. Raises the errors of `combine`.
        """
        if self._others is not None:
            return 0
        done = self._fold_pairs(records)
        self._keep_within([key for key, _ in records[: done : -(-done // _SAMPLE) or 1]], done)
        return done

    def results(self) -> Iterator[tuple[Key, Any]]:
        """Called once, at the end. Raises the errors of `combine`."""
        firsts: dict[Any, Any] = self._firsts
        folds: Iterable[tuple[Any, Any]] = self._folded.items()
        yield from ((firsts.get(name, name), value) for name, value in folds) if firsts else folds
        self._folded.clear()
        if self._others is not None:
            yield from fold_groups(self._others.groups(), self._combine)

    def _fold(self, names: Iterable[Hashable], keys: Iterable[Key], values: Iterable[Any]) -> None:
        folded, combine = self._folded, self._combine
        key: Any = NOTHING
        try:
            for name, key, value in zip(names, keys, values, strict=True):
                if name in folded:
                    folded[name] = combine(folded[name], value)
                else:
                    folded[name] = value
                    if name is not key:
                        self._firsts[name] = key
        except Exception as error:
            _note_key(error, key)
            raise

    def _fold_pairs(self, records: Sequence[Any]) -> int:
        """This loop determines the cost per record: one pass, and types are checked only when they change."""
        folded, combine = self._folded, self._combine
        key_type = value_type = None
        key: Any = NOTHING
        rest = iter(records)
        try:
            for record in rest:
                if type(record) is not tuple:
                    break
                try:
                    key, value = record
                except ValueError:  # not a pair
                    break
                if type(key) is not key_type or type(value) is not value_type:
                    if type(key) not in SELF_IDENTICAL or type(value) not in ATOMS:
                        break
                    key_type, value_type = type(key), type(value)
                folded[key] = combine(folded[key], value) if key in folded else value
            else:
                return len(records)
        except Exception as error:
            _note_key(error, key)
            raise
        return len(records) - length_hint(rest) - 1

    def _fold_held(
        self, names: Iterable[Hashable], keys: Iterable[Key], values: Iterable[Any], others: Grouper
    ) -> None:
        """Fold records whose keys are in memory; pass the others to `others`."""
        folded, combine = self._folded, self._combine
        left_keys: list[Key] = []
        left: list[Any] = []
        key: Any = NOTHING
        try:
            for name, key, value in zip(names, keys, values, strict=True):
                if name in folded:
                    folded[name] = combine(folded[name], value)
                else:
                    left_keys.append(key)
                    left.append(value)
        except Exception as error:
            _note_key(error, key)
            raise
        others.add(left_keys, left)

    def _keep_within(self, names: Sequence[Hashable], count: int) -> None:
        """Stop admitting keys when the room is full. Called after `count` more records; `names` is a sample of their
        keys."""
        self._unseen -= count
        if names and self._unseen < 0:
            sample = [(name, self._folded[name]) for name in names]
            self._each = memory_of("objects", sample) // len(sample) + _ENTRY
            self._unseen = min(len(self._folded), _RECORDS)
        if len(self._folded) * self._each > self._room.size:
            self._others = Grouper(self._room)


def fold_groups(groups: Iterable[Group], combine: Binary) -> Iterator[tuple[Key, Any]]:
    """The left fold of each group."""
    for key, pieces in groups:
        try:
            folded = reduce(combine, chain.from_iterable(pieces))
        except Exception as error:
            _note_key(error, key)
            raise
        yield key, folded


def _note_key(error: Exception, key: Key) -> None:
    """Attach to the error the key whose values were folded, because the caller does not see the fold."""
    vars(error).setdefault(_KEY, key)


def key_of_failure(error: BaseException) -> Any:
    """The key whose values were folded when the error was raised; NOTHING if no fold raised it."""
    return vars(error).get(_KEY, NOTHING)


_KEY = "_treadle_key"
