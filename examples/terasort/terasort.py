"""Functions of the terasort example: records are rows of a uint8 array of shape (n, 100)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treadle.executors import Context, Result

KEY_BYTES = 10
Records = NDArray[np.uint8]


def keys(records: Records) -> NDArray[np.bytes_]:
    """The first ten bytes of each record, as one array of keys."""
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


def validate(values: Any) -> Result:
    """Every record in order, and a checksum that does not depend on the order."""
    records, checksum, last = 0, 0, b""
    for part in values.partitions():
        found = keys(part)
        if len(found) == 0:
            continue
        if bytes(found[0]) < last or (found[1:] < found[:-1]).any():
            raise ValueError("the output is not sorted")
        last = bytes(found[-1])
        records += len(part)
        checksum = (checksum + int(part.astype(np.uint64).sum())) % 2**63
    return Result(records, metrics={"records": records, "checksum": checksum})
