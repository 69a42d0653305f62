"""External merge sort: runs sorted in memory, written to a file, then merged (Knuth, TAOCP 3, section 5.4).

The merge handles stretches of records instead of single records. From the blocks at the heads of the runs it takes all
records that must precede the rest of the file, and joins and sorts them at once. So each kind of partition is sorted by
its own library. A stretch that is already in order costs one comparison per record (lists) or little more (columns).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from treadle.primitives.encoding import codec
from treadle.primitives.encoding.references import Kind
from treadle.primitives.shuffling.key_order import argsort, order
from treadle.primitives.shuffling.partitioning import rows_between

from .memory_budget import Extent, MemoryBudget, SpillFile
from .row_access import compact, compact_keys, join_keys, take, take_keys
from .size_estimate import memory_of

FAN_IN = 64
"""Maximum runs merged at once; each holds one chunk in memory."""
_KEY_BYTES = 80
"""Memory of an object's key during the sort: its place in lists of keys, ranks and positions."""

Block = tuple[Any, Any]
"""(keys, records), equally many."""


class Sorter:
    """A stable sort of more records than the room holds. Keys are accepted as by `argsort`: lists or arrays of keys."""

    def __init__(self, kind: Kind, room: MemoryBudget) -> None:
        self._kind = kind
        self._room = room
        self._file: SpillFile | None = None
        self._runs: list[Iterator[Block]] = []
        self._held: list[Block] = []
        self._size = 0

    def add(self, keys: Any, value: Any) -> None:
        """Add records after the earlier ones. Raises DataError for records that cannot be pickled or differ in type."""
        if not len(keys):
            return
        self._held.append((keys, value))
        self._size += memory_of(self._kind, value) + (_KEY_BYTES * len(keys) if self._kind == "objects" else 0)
        if self._room.full(self._kind, self._size):
            self._flush()

    def add_run(self, blocks: Iterable[Block]) -> None:
        """Add records that are already in order, one chunk of the room in each block, after the earlier ones."""
        self._flush()
        file = self._file = self._file or self._room.file()
        self._runs.append(_read(file, [file.put(list(block)) for block in blocks]))

    def add_stream(self, blocks: Iterator[Block]) -> None:
        """Like `add_run`, for blocks that are produced during the merge."""
        self._flush()
        self._runs.append(blocks)

    def blocks(self) -> Iterator[Block]:
        """All records in order, in stretches. Called once, at the end."""
        if not self._runs:
            if self._held:
                yield self._sorted()
            return
        self._flush()
        files, runs = [self._file] if self._file else [], self._runs
        while (more := len(runs) - FAN_IN) > 0:  # merge as few runs as possible beforehand
            first = min(more + -(-more // (FAN_IN - 1)), len(runs))
            groups = [runs[start : min(start + FAN_IN, first)] for start in range(0, first, FAN_IN)]
            files.append(self._room.file())
            runs = [*(self._rewritten(files[-1], group) for group in groups), *runs[first:]]
        yield from self._merged(runs)
        for file in files:
            file.close()

    def _sorted(self) -> Block:
        keys = join_keys([keys for keys, _ in self._held])
        value = codec.concat(self._kind, [value for _, value in self._held])
        self._held, self._size = [], 0
        positions = argsort(keys)
        return take_keys(keys, positions), take(self._kind, value, positions)

    def _flush(self) -> None:
        if self._held:
            self._file = self._file or self._room.file()
            self._runs.append(_read(self._file, self._written(self._file, *self._sorted())))

    def _written(self, file: SpillFile, keys: Any, value: Any) -> list[Extent]:
        """Write a sorted stretch, in pieces of one chunk each."""
        count = len(keys)
        rows = max(1, count * self._room.chunk // max(memory_of(self._kind, value), 1))
        stops = ((start, min(start + rows, count)) for start in range(0, count, rows))
        return [
            file.put([compact_keys(keys, start, stop), compact(self._kind, value, start, stop)])
            for start, stop in stops
        ]

    def _rewritten(self, target: SpillFile, runs: Sequence[Iterator[Block]]) -> Iterator[Block]:
        return _read(target, [extent for block in self._merged(runs) for extent in self._written(target, *block)])

    def _merged(self, runs: Sequence[Iterator[Block]]) -> Iterator[Block]:
        heads = [head for head in (_Head(self._kind, run) for run in runs) if head.advance()]
        while heads:
            stretches = [block for block in _before_the_rest(heads) if len(block[0])]
            keys = join_keys([keys for keys, _ in stretches])
            value = codec.concat(self._kind, [value for _, value in stretches])
            if len(stretches) > 1:
                positions = argsort(keys)
                keys, value = take_keys(keys, positions), take(self._kind, value, positions)
            del stretches
            yield keys, value
            del keys, value
            heads = [head for head in heads if head.advance()]


def _read(file: SpillFile, extents: Sequence[Extent]) -> Iterator[Block]:
    return map(file.get, extents)


def _before_the_rest(heads: Sequence[_Head]) -> list[Block]:
    """All records that no later block of any run can precede: one whole block, and parts of the other blocks.

    The block with the least last key is taken whole. Keys equal to it are taken from earlier runs too. In later runs
    they wait, because the run of that block may have more of them.
    """
    lasts = [head.last for head in heads]
    least = min(lasts)
    lead = lasts.index(least)
    return [head.until(least, inclusive=index <= lead) for index, head in enumerate(heads)]


class _Head:
    """The block of a run that is in memory."""

    def __init__(self, kind: Kind, run: Iterator[Block]) -> None:
        self._kind, self._run = kind, run
        self._keys: Any = ()
        self._value: Any = None
        self._start = 0
        self.last: tuple[Any, ...] = ()
        """Order of the block's last key."""

    def advance(self) -> bool:
        """Load the next block when this one is used up; False at the end of the run."""
        if self._start < len(self._keys):
            return True
        self._keys, self._value = (), None
        block = next(self._run, None)
        if block is None:
            return False
        self._keys, self._value = block
        self._start, self.last = 0, order(self._keys[-1])
        return True

    def until(self, bound: tuple[Any, ...], *, inclusive: bool) -> Block:
        """Take the records before the key `bound`; `inclusive`: up to and including it."""
        find = bisect_right if inclusive else bisect_left
        count = len(self._keys)
        start = self._start
        stop = self._start = find(range(count), bound, lo=start, key=lambda index: order(self._keys[index]))
        return self._keys[start:stop], rows_between(self._kind, self._value, start, stop)
