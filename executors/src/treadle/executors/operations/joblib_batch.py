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
    batch = unpack_writable(packed, arrays)
    _name_nested_backend()
    return pack(batch())


def _name_nested_backend() -> None:
    """Inside a batch, the backend `treadle` runs batches one after another: the slots belong to the outer ones."""
    from joblib import register_parallel_backend
    from joblib.parallel import SequentialBackend

    register_parallel_backend("treadle", SequentialBackend)


def unpack_writable(packed: Packed, arrays: Sequence[Any] = ()) -> Any:
    """Return a packed value whose own arrays are writable copies."""
    data, *buffers = packed
    return unpack((data, *map(bytearray, buffers)), arrays.__getitem__)
