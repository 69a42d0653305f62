"""The partition of a record: balanced cuts, hash and range targets, samples, boundaries, batches.

Everything here is a function of the data and the specification only, never of slots, memory or timing.
"""

from __future__ import annotations

import pickle
from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, cast

from ..encoding.references import Kind
from ..errors import DataError, InternalError
from .hashing import hash_sequence, stable_hash_array
from .key_columns import is_array
from .key_order import argsort, order
from .keys import Key, canonical, identity, mix
from .seeds import partition_seed
from .table_size import table_bytes

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from .key_columns import KeyArray

SAMPLE_SIZE = 1024
"""Keys sampled from one partition. With as many targets as partitions each boundary rests on about 1024 keys, so the
size of a target varies by about 1/sqrt(1024) = 3 %; the default maximum of 256 partitions gives 262,144 keys."""


DEFAULT_PARTITIONS = 256
"""Default maximum of partitions of items, ranges and shuffles."""
DEFAULT_FAN_IN = 16
"""Default number of partial results that one step of a `per: all` reduce folds."""


def split_evenly(count: int, parts: int) -> list[tuple[int, int]]:
    """`parts` consecutive [start, stop) over range(count); sizes differ by at most 1, the larger come first."""
    if parts < 1 or count < 0:
        raise InternalError(f"cannot cut {count} records into {parts} parts")
    size, larger = divmod(count, parts)
    bounds = [index * size + min(index, larger) for index in range(parts + 1)]
    return list(pairwise(bounds))


# -- targets -------------------------------------------------------------------------------------------------------


def hash_targets(keys: Sequence[object] | KeyArray, partitions: int) -> list[int] | NDArray[np.int64]:
    """stable_hash(key) mod partitions of each key, in order: a list, or an array (n,) for an array."""
    if is_array(keys):
        hashes = stable_hash_array(cast("KeyArray", keys))
        hashes %= hashes.dtype.type(partitions)
        return hashes.view("int64")
    found = hash_sequence(cast("Sequence[object]", keys))
    if isinstance(found, list):
        return [value % partitions for value in found]
    return cast("list[int]", (found % found.dtype.type(partitions)).tolist())


def check_boundaries(boundaries: object, partitions: int) -> list[Key]:
    """The boundaries as canonical keys. Raises DataError unless they are exactly partitions - 1, ascending."""
    if not is_array(boundaries) and not isinstance(boundaries, (list, tuple)):
        raise DataError(
            f"boundaries must be a list of keys, not {type(boundaries).__name__}",
            "Give a list, or a broadcast whose value is a list or an array.",
        )
    keys = [canonical(boundary) for boundary in cast("Sequence[object]", boundaries)]
    if len(keys) != partitions - 1:
        raise DataError(
            f"{len(keys)} boundaries for {partitions} partitions",
            f"Give exactly {partitions - 1}: one between each partition and the next.",
        )
    for index in range(1, len(keys)):
        if order(keys[index]) < order(keys[index - 1]):
            raise DataError(
                f"boundary {index} ({keys[index]!r}) is less than the one before it ({keys[index - 1]!r})",
                "Sort the boundaries in ascending order.",
            )
    return keys


# -- sampled boundaries ------------------------------------------------------------------------------------------------


def sample_keys(keys: Sequence[object] | KeyArray, *, seed: int, stage: str, partition: int) -> list[Key]:
    """At most SAMPLE_SIZE keys in their order: all of them, or one from each of SAMPLE_SIZE equal strata.

    The place within a stratum depends on (seed, stage, partition) only.
    """
    count = len(keys)
    if count <= SAMPLE_SIZE:
        return [canonical(key) for key in keys]
    state = partition_seed(seed, stage, partition) & (2**64 - 1)
    strata = enumerate(split_evenly(count, SAMPLE_SIZE))
    places = (start + mix(state ^ index) % (stop - start) for index, (start, stop) in strata)
    return [canonical(keys[place]) for place in places]


def choose_boundaries(samples: Sequence[tuple[Sequence[Key], int]], partitions: int) -> list[Key]:
    """Return partitions - 1 ascending keys that cut the sampled data into targets of about equal rows.

    `samples` holds (sampled keys, rows of the partition) for each source partition, in order; a key represents rows /
    len(keys) records. Each boundary is the distinct key whose number of preceding records is nearest to its share.
    Without any key every boundary is None.
    """
    keys = [key for sampled, _ in samples for key in sampled]
    weights = [(rows << 20) // len(sampled) for sampled, rows in samples for _ in sampled]
    distinct: list[Key] = []
    before: list[int] = []
    total, last = 0, None
    for place in cast("list[int]", argsort(keys)):
        name = identity(keys[place])
        if not distinct or name != last:
            distinct.append(keys[place])
            before.append(total)
            last = name
        total += weights[place]
    if not distinct:
        return [None] * (partitions - 1)
    return [distinct[_nearest(before, index * total, partitions)] for index in range(1, partitions)]


def _nearest(before: list[int], share: int, partitions: int) -> int:
    """Index of the entry nearest to share / partitions; the lower one on a tie."""
    above = bisect_left(before, share, key=lambda value: value * partitions)
    if above == 0 or (
        above < len(before) and before[above] * partitions - share < share - before[above - 1] * partitions
    ):
        return above
    return above - 1


# -- batches -----------------------------------------------------------------------------------------------------------


def cut(kind: Kind, value: Any, max_items: int = 0, max_bytes: int = 0) -> list[Any]:
    """The partition as consecutive chunks of at most so many records and encoded bytes (0: no limit).

    A chunk takes as many records as fit and at least one; an empty partition is one empty chunk. A record's encoded
    size is
    its pickle (protocol 5) for objects, the row's share of `bytes_of_rows` otherwise.
    """
    if kind == "objects":
        stops = _stops_by_size(value, max_items, max_bytes)
    else:
        stops = _stops_by_rows(len(value), bytes_of_rows(kind, value) if max_bytes else 0, max_items, max_bytes)
    starts = [0, *stops[:-1]]
    return [rows_between(kind, value, start, stop) for start, stop in zip(starts, stops, strict=True)]


def rows_between(kind: Kind, value: Any, start: int, stop: int) -> Any:
    """The records from `start` to before `stop`; a view for arrays and tables."""
    return value.slice(start, stop - start) if kind == "table" else value[start:stop]


def bytes_of_rows(kind: Kind, value: Any) -> int:
    """Bytes of an array or a table; the bytes of its pieces add up to it, wherever it is cut."""
    return table_bytes(value) if kind == "table" else int(value.nbytes)


def rows_of_a_chunk(rows: int, size: int, max_items: int, max_bytes: int) -> int:
    """The maximum number of rows in a chunk of a partition that has `rows` rows and `size` bytes."""
    row_bytes = max(1, -(-size // rows)) if rows else 1
    limits = [limit for limit in (max_items, max_bytes and max(1, max_bytes // row_bytes)) if limit]
    return min(limits, default=max(rows, 1))


def _stops_by_rows(rows: int, size: int, max_items: int, max_bytes: int) -> list[int]:
    step = rows_of_a_chunk(rows, size, max_items, max_bytes)
    return [*range(step, rows, step), rows]


def _stops_by_size(records: Sequence[object], max_items: int, max_bytes: int) -> list[int]:
    if not max_bytes:
        return _stops_by_rows(len(records), 0, max_items, 0)
    stops: list[int] = []
    start = size = 0
    for index, record in enumerate(records):
        length = len(pickle.dumps(record, protocol=5))
        if index > start and (size + length > max_bytes or index - start == max_items):
            stops.append(index)
            start, size = index, 0
        size += length
    return [*stops, len(records)]
