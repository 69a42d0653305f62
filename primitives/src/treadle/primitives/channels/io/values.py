"""Values of user functions as payloads: small ones in the message, others as blocks that members of a host map."""

from __future__ import annotations

import contextlib
import pickle
import sys
from collections.abc import Callable, Sequence
from typing import Any, Literal

from ...blocks import Blocks
from ...codec import decode
from ...errors import MissingError, TreadleError
from ...references import Kind, Slice
from ..messages import Payload

INLINE = 8 << 10
"""Bytes of an encoded value up to which it travels in the message."""
_PLAIN = {bytes: INLINE - 64, str: (INLINE - 64) // 4, int: 0, float: 0, bool: 0, type(None): 0}
"""Types that need none of what the codec offers, and the length up to which they surely travel in the message."""
_MAPPED = 64 << 10
"""Bytes from which a block of this host is mapped."""
_INLINE_ALL = 32 << 10
"""The same for the pieces of one round of a shuffle together."""


class Values:
    """Encodes and decodes; thread-safe as Blocks are."""

    def __init__(self, blocks: Blocks, prefix: str, is_far: Callable[[], bool]) -> None:
        """`is_far`: whether some receiver cannot be reached directly, so that blocks go to the store."""
        self._blocks, self._prefix, self._is_far = blocks, prefix, is_far

    @property
    def _place(self) -> Literal["host", "store"]:
        return "store" if self._is_far() else "host"

    def encode(self, value: Any) -> Payload:
        """One value. Raises DataError and StoreError."""
        if (plain := _PLAIN.get(type(value))) is not None and (not plain or len(value) <= plain):
            return Payload("plain", pickle.dumps(value, 5))
        kind = kind_of(value)
        part = [value] if kind == "objects" else value
        ref = self._blocks.put(self._prefix, kind, [part], self._place, INLINE)
        return Payload(kind, ref.inline) if ref.inline else Payload(kind, b"", ref.slice(0))

    def encode_pieces(self, kind: Kind, pieces: Sequence[Any]) -> list[Payload]:
        """The pieces of a round, as one block when they are not small."""
        limit = min(INLINE * len(pieces), _INLINE_ALL)
        ref = self._blocks.put(self._prefix, kind, pieces, self._place, limit)
        slices = [ref.slice(index) for index in range(len(pieces))]
        if ref.inline:
            return [Payload(kind, slice.inline) for slice in slices]
        return [Payload(kind, b"", slice) for slice in slices]

    def decode(self, payload: Payload) -> Any:
        """The value `encode` was given; arrays and tables are read-only views. Raises as `Blocks.get` does."""
        if payload.kind == "plain":
            return pickle.loads(payload.data)
        value = self.decode_piece(payload)
        return value[0] if payload.kind == "objects" else value

    def decode_piece(self, payload: Payload) -> Any:
        """A piece `encode_pieces` was given."""
        if payload.slice is None:
            return decode(payload.data)
        found = self._map(payload.slice)
        return self._blocks.get(payload.slice, shared=True) if found is None else decode(found)

    def _map(self, slice: Slice) -> memoryview | None:
        """The bytes of a large block of this host, or None.

        They are not read to check them: a member of the run put them there whole, and said so over an authenticated
        connection. Reading 100 MB in each of many members would cost more than all else a broadcast does.
        """
        host, part = self._blocks._host, slice.part
        if host is None or part.length < _MAPPED or f"host:{host.host_id}" not in slice.locations:
            return None
        try:
            found = host.map(f"{self._blocks._run}/{slice.name}")
        except MissingError:
            return None
        return found[part.offset : part.offset + part.length]

    def discard(self, payload: Payload) -> None:
        """Give back the shared memory of a block that everybody has mapped. Best effort: the run's end does it too."""
        host, slice = self._blocks._host, payload.slice
        if host is None or slice is None or f"host:{host.host_id}" not in slice.locations:
            return
        with contextlib.suppress(OSError, TreadleError):
            host.path(f"{self._blocks._run}/{slice.name}").unlink(missing_ok=True)


def kind_of(value: Any) -> Kind:
    """How a value is encoded."""
    numpy, arrow = sys.modules.get("numpy"), sys.modules.get("pyarrow")
    if numpy is not None and type(value) is numpy.ndarray and value.ndim and not value.dtype.hasobject:
        return "array"
    if arrow is not None and isinstance(value, arrow.Table) and value.num_columns:
        return "table"
    return "objects"
