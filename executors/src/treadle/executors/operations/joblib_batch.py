"""The functions that run joblib's batches in workers: the calls of a session whose client is joblib.

joblib's own workers get small arrays that they may change in place, and its client gets results that it may change. So
both are copied here. Large arrays among the arguments come as read-only views.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from treadle.primitives.encoding.by_value import Packed, pack, unpack


def joblib_batch(packed: Packed, arrays: Sequence[Any]) -> Packed:
    """Run a batch, and return its results by value. `arrays`: the large arrays, which the batch names by number."""
    return pack(unpack_writable(packed, arrays)())


def unpack_writable(packed: Packed, arrays: Sequence[Any] = ()) -> Any:
    """Return a packed value whose own arrays are writable copies."""
    data, *buffers = packed
    return unpack((data, *map(bytearray, buffers)), arrays.__getitem__)
