"""Operations of collectives on users' values: distribute records to consumers, and fold values."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ..encoding.references import Kind
from ..errors import DataError
from ..shuffling.scatter import scatter_rows
from .io.payloads import kind_of

_WORTH_KEEPING = 4 << 10
"""Bytes below which allocating a new array is faster than looking for one to reuse."""
_PART_BYTES = 1 << 16
"""Bytes of each array in one step: three or four such parts fit into a processor's cache."""


def distribute(data: Any, hash: Callable[[Any], Any], consumers: int) -> tuple[Kind, list[Any]]:
    """Return the kind of the pieces, and a piece for each consumer: piece i holds the records whose hash is i modulo
    consumers.

    The records keep their order. Raises DataError for hashes that are not integers.
    """
    kind = kind_of(data)
    if kind == "objects":
        return kind, _records(data, hash, consumers)
    return kind, _rows(kind, data, hash, consumers)


def _records(data: Any, hash: Callable[[Any], Any], consumers: int) -> list[Any]:
    pieces: list[list[Any]] = [[] for _ in range(consumers)]
    if not consumers:
        return pieces
    try:
        for record in data:
            pieces[hash(record) % consumers].append(record)
    except TypeError as error:
        raise DataError(f"a record cannot be given to a consumer: {error}", "hash returns an integer.") from error
    return pieces


def _rows(kind: Kind, data: Any, hash: Callable[[Any], Any], consumers: int) -> list[Any]:
    import numpy as np

    hashes = np.asarray(hash(data))
    if hashes.shape != (len(data),) or hashes.dtype.kind not in "iu":
        what = f"hash gave {hashes.dtype}{list(hashes.shape)} for {len(data)} rows"
        raise DataError(what, "It gets the whole array or table, and returns one integer for each row.")
    if not consumers:
        return []
    power_of_two = consumers & (consumers - 1) == 0
    # equal to the remainder, because integers are in two's complement
    targets = hashes & (consumers - 1) if power_of_two else hashes % consumers
    return scatter_rows(kind, data, targets, consumers)


def fold(
    reduce: Callable[[Any, Any], Any],
    left: Any,
    right: Sequence[Any],
    *,
    owned: bool,
    room: Callable[[Any], Any] = lambda like: None,  # noqa: ARG005
) -> Any:
    """Fold the values on the right into `left`, in order. Where a NumPy ufunc allows it, the result reuses memory.

    The memory is that of `left` when `owned`, otherwise an array from `room`, if it has one.
    """
    large = getattr(left, "nbytes", 0) >= _WORTH_KEEPING
    if not large or not all(_keeps_its_type(reduce, left, one) for one in right):
        for one in right:
            left = reduce(left, one)
        return left
    import numpy as np

    out = left if owned and left.flags.writeable else room(left)
    out = np.empty_like(left) if out is None else out
    for into, first, *others in _parts(reduce, [out, left, *right]):
        reduce(first, others[0], out=into)  # type: ignore[call-arg]
        for one in others[1:]:
            reduce(into, one, out=into)  # type: ignore[call-arg]
    return out


def _parts(reduce: Any, arrays: list[Any]) -> Iterator[list[Any]]:
    """Cut the arrays into parts that stay in the cache from one fold to the next; one part where cutting is impossible
    or useless.
    """
    if len(arrays) < 4 or reduce.signature is not None or not all(one.flags.c_contiguous for one in arrays):
        yield arrays
        return
    flat = [one.reshape(-1) for one in arrays]
    step = max(1, _PART_BYTES // arrays[0].itemsize)
    for start in range(0, len(flat[0]), step):
        yield [one[start : start + step] for one in flat]


def _keeps_its_type(reduce: Callable[[Any, Any], Any], left: Any, right: Any) -> bool:
    numpy = sys.modules.get("numpy")
    if numpy is None or not isinstance(reduce, numpy.ufunc) or type(left) is not numpy.ndarray:
        return False
    alike = type(right) is numpy.ndarray and left.shape == right.shape and left.dtype == right.dtype
    if not alike or left.dtype.hasobject:
        return False
    return bool(reduce.resolve_dtypes((left.dtype, right.dtype, None))[-1] == left.dtype)
