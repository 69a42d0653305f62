"""Functions of the terasort example: records are rows of a uint8 array of shape (n, 100)."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from treadle.executors import Context, Result

KEY_BYTES = 10
RECORD_BYTES = 100
Records = NDArray[np.uint8]
Summary = tuple[bytes, bytes, int, int] | None
"""First key, last key, records, checksum. None: no records."""


def keys(records: Records) -> NDArray[np.bytes_]:
    """The first ten bytes of each record, as one array of keys. NUL bytes at the end of a key do not count."""
    return np.ascontiguousarray(records[:, :KEY_BYTES]).view(f"S{KEY_BYTES}")[:, 0]


def sample_keys(records: Records, most: int, context: Context) -> Iterator[bytes]:
    """At most `most` keys of the partition, drawn with the partition's own seed."""
    found = keys(records)
    chosen = context.rng.choice(len(found), size=min(most, len(found)), replace=False)
    for key in found[np.sort(chosen)]:
        yield bytes(key)


def quantiles(values: Iterator[bytes], partitions: int) -> list[bytes]:
    """Boundaries that cut the sample into equal shares."""
    sample = sorted(values)
    return [sample[len(sample) * i // partitions] for i in range(1, partitions)] if sample else [b""] * (partitions - 1)


def summary(records: Records) -> Summary:
    """The part of a partition that remains to be checked. Its records must be in order."""
    found = keys(records)
    if len(found) == 0:
        return None
    if (found[1:] < found[:-1]).any():
        raise ValueError("a partition is not sorted")
    return bytes(found[0]), bytes(found[-1]), len(records), checksum(records)


def follow(a: Summary, b: Summary) -> Summary:
    """The summary of two neighbours. Raises ValueError when the second begins before the first ends."""
    if a is None or b is None:
        return a or b
    if b[0] < a[1]:
        raise ValueError("the partitions are not in order")
    return a[0], b[1], a[2] + b[2], a[3] + b[3]


def report(total: Summary) -> Result:
    records, crcs = (total[2], total[3]) if total else (0, 0)
    return Result(records, metrics={"records": records, "checksum": crcs})


def checksum(records: Records) -> int:
    """The sum of the records' CRC-32, which is the same in any order, as in TeraValidate of Hadoop."""
    data = records.tobytes()
    return sum(zlib.crc32(data[i : i + RECORD_BYTES]) for i in range(0, len(data), RECORD_BYTES))
