"""The input of a partition: files, literals and blocks. Immutable blocks stay decoded between partitions."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal

from treadle.primitives.encoding.frames import SMALL
from treadle.primitives.encoding.read_only import is_frozen
from treadle.primitives.encoding.references import Kind, Slice
from treadle.primitives.errors import DataError, MissingError
from treadle.primitives.formats import FileSplit

from ..operations.attempt_state import Attempt, Services
from ..operations.record_flow import EXPANSION, Flow, objects
from ..program import BlockInput, EventSplit, ItemSplit, PartitionInput, RangeSplit
from .shuffle_index import one_kind

_RANGE_CHUNK = 1 << 16
_Entry = tuple[Any, int, Literal["shared", "list"]]


class InputCache:
    """A least-recently-used cache of decoded slices, limited to `limit` encoded bytes.

    Only immutable values are kept. A block that holds one list of frozen records (a broadcast list) is kept too: every
    caller receives its own copy of the list.
    """

    def __init__(self, limit: int) -> None:
        self._most = self._limit = limit
        self._size = 0
        self._entries: OrderedDict[tuple[str, int], _Entry] = OrderedDict()

    def keep_within(self, limit: int) -> None:
        """Keep at most `limit` bytes from now on; 0: the original limit."""
        self._limit = min(self._most, limit or self._most)
        self._shrink()

    def load(self, slice: Slice, get: Callable[[Slice], Any]) -> Any:
        """The value of the slice: cached, or from `get`, whose errors pass through."""
        if slice.inline and slice.part.length < SMALL:  # decoded as fast as found
            return get(slice)
        name = (slice.name, slice.part.offset)
        entry = self._entries.get(name)
        if entry is not None:
            self._entries.move_to_end(name)
            return _given(entry)
        value = get(slice)
        sharing = _sharing(slice.kind, value)
        if sharing is None or slice.part.length > self._limit:
            return value
        self._keep(name, (value, slice.part.length, sharing))
        return _given(self._entries[name])

    def missing(self, slices: Iterable[Slice]) -> list[Slice]:
        """The slices that it does not have."""
        return [one for one in slices if (one.name, one.part.offset) not in self._entries]

    def _keep(self, name: tuple[str, int], entry: _Entry) -> None:
        self._entries[name] = entry
        self._size += entry[1]
        self._shrink()

    def _shrink(self) -> None:
        while self._size > self._limit:
            self._size -= self._entries.popitem(last=False)[1][1]

    def clear(self) -> None:
        self._entries.clear()
        self._size = 0


def _sharing(kind: Kind, value: Any) -> Literal["shared", "list"] | None:
    if is_frozen(kind, value):
        return "shared"
    is_list = kind == "objects" and len(value) == 1 and type(value[0]) is list
    return "list" if is_list and is_frozen("objects", value[0]) else None


def _given(entry: _Entry) -> Any:
    value, _, sharing = entry
    return value if sharing == "shared" else [list(value[0])]


def expect_input(source: PartitionInput, services: Services) -> None:
    """Announce the input of a partition that will run after the announced ones."""
    match source:
        case BlockInput(inputs):
            if far := [one for row in inputs for one in row if not one.inline]:
                services.expect(far)
        case FileSplit():
            services.files.expect(source)


def read_input(source: PartitionInput, attempt: Attempt) -> Flow:
    """The partition's records, read with the services of the attempt; blocks are read on demand.

    Raises DataError for invalid files, StoreError.
    """
    match source:
        case BlockInput(inputs, pieces):
            flows = tuple(_blocks(slices, attempt, pieces) for slices in inputs)
            if attempt.services.inputs_apart:
                return Flow("objects", (), inputs=flows)
            together = tuple(one for row in inputs for one in row)
            return flows[0] if len(flows) == 1 else _blocks(together, attempt, pieces)
        case FileSplit():
            return _file(source, attempt)
        case ItemSplit(items):
            return objects(list(items) if is_frozen("objects", items) else copy.deepcopy(list(items)))
        case RangeSplit(start, stop):
            short = stop - start <= _RANGE_CHUNK
            return Flow("objects", (list(range(start, stop)),) if short else _integers(start, stop))
        case EventSplit():
            return Flow("objects", _all_of(attempt.services.events(source), attempt))


def _integers(start: int, stop: int) -> Iterator[list[int]]:
    for first in range(start, stop, _RANGE_CHUNK):
        yield list(range(first, min(first + _RANGE_CHUNK, stop)))


def _file(split: FileSplit, attempt: Attempt) -> Flow:
    attempt.bytes_in += split.size if split.options.format in ("parquet", "npy") else split.stop - split.start
    kind, pieces = attempt.services.files.read(split)
    return Flow(kind, _all_of(_there(split, pieces), attempt))


def _there(split: FileSplit, pieces: Iterator[Any]) -> Iterator[Any]:
    try:
        yield from pieces
    except MissingError as error:
        raise DataError(
            f"the input file {split.uri} is gone", "Put it back and resume, or start a new run without it."
        ) from error


def _all_of(pieces: Iterator[Any], attempt: Attempt) -> Iterator[Any]:
    """The pieces, always consumed to the end. Errors in any of them are reported for the current stage."""
    return attempt.lazily(attempt.guarded(pieces, attempt.stage))


def _blocks(slices: tuple[Slice, ...], attempt: Attempt, pieces: bool) -> Flow:
    attempt.bytes_in += sum(one.part.length for one in slices)
    full = tuple(one for one in slices if one.part.rows) or slices[:1]
    kind = one_kind({one.kind for one in full})
    slices = tuple(one for one in slices if one.kind == kind)
    sizes = [one.part.length for one in slices]

    def sources() -> Iterator[Flow]:
        return (
            Flow(kind, _pieces(one, slices[index + 1 :], attempt), encoded=one.part.length)
            for index, one in enumerate(slices)
        )

    together = (piece for one in sources() for piece in one.parts)
    return Flow(kind, together, None if pieces else sources, sum(sizes))


def _pieces(slice: Slice, rest: tuple[Slice, ...], attempt: Attempt) -> Iterator[Any]:
    """The value of a slice: as a whole if it fits into the room, so that it can be cached; otherwise in pieces."""
    if slice.part.length * EXPANSION[slice.kind] <= attempt.room.size:
        yield attempt.read(slice, rest)
    else:
        yield from attempt.pieces(slice, rest)
