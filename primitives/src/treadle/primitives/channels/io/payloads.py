"""Payloads of users' values: small values inside the message, others as blocks that the members of a host map."""

from __future__ import annotations

import pickle
import sys
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

from ...blocks import Blocks
from ...encoding.codec import decode, encode
from ...encoding.references import BlockRef, Kind, Slice
from ...errors import MissingError
from ...stores.atomic_files import Buffer
from ...stores.store_errors import border
from ..errors import MemberLost
from ..messages import Payload
from .shared_memory import Segments, SharedMemorySegment

INLINE = 8 << 10
"""Largest encoded value, in bytes, that is sent in the message."""
_PLAIN = {str: (INLINE - 64) // 4, int: 0, float: 0, bool: 0, type(None): 0}
"""Types that need no codec, and the length below which they certainly fit in the message."""
_NUMBERS = "biufc"
"""Kinds of dtypes whose arrays are sent as bytes, dtype and shape: a tenth of the codec's time where most code runs
cold.
"""
_INLINE_ALL = 32 << 10
"""Limit in bytes for all pieces of one round of a shuffle together."""
_INLINE_NUMBERS = 1 << 20
"""The same limit when every piece is a small array: opening a block takes longer than copying its bytes, and needs an
answer.
"""
_COMMON = 256 << 20
"""Limit in bytes of the files that a member keeps for other members of its host; one file may be larger."""


class ArrayMemory(NamedTuple):
    """An array whose memory will be sent."""

    array: Any
    segment: SharedMemorySegment


class ValueCodec:
    """Encodes and decodes values; thread-safe as Blocks is."""

    def __init__(self, blocks: Blocks, prefix: str, is_far: Callable[[], bool], *, one_host: bool = False) -> None:
        """`is_far` returns whether some receiver cannot be reached directly; then blocks go to the store."""
        self._one_host = one_host
        self._blocks, self._prefix, self._is_far = blocks, prefix, is_far
        self._segments = Segments(blocks.host) if blocks.host is not None else None
        self._common: deque[Slice] = deque()
        """The last blocks that all members of this host read in one file each."""

    def _put(self, kind: Kind, parts: Sequence[Any], limit: int, room: ArrayMemory | None = None) -> BlockRef:
        write: Callable[[str, Sequence[Buffer]], None] | None = None
        if self._segments is not None:
            write = partial(self._segments.write, into=room.segment) if room is not None else self._segments.write
        place: Literal["host", "store"] = "host" if room is not None or not self._is_far() else "store"
        return self._blocks.put(
            self._prefix, kind, parts, place, inline_limit=limit, write=write, checksums=not self._one_host
        )

    def room(self, like: Any) -> ArrayMemory | None:
        """Return memory for an array of this dtype and shape, in a kept segment; None for a small array or without a
        segment.
        """
        if self._segments is None or kind_of(like) != "array" or like.nbytes <= INLINE or not like.flags.c_contiguous:
            return None
        import numpy as np

        head, body, *rest = encode("array", like)
        segment = self._segments.reserve(sum(map(len, (head, body, *rest))), len(head))
        if segment is None:
            return None
        data = segment.memory[len(head) : len(head) + len(body)]
        return ArrayMemory(np.frombuffer(data, like.dtype).reshape(like.shape), segment)

    def leave(self, room: ArrayMemory) -> None:
        """Release memory that will not be sent."""
        assert self._segments is not None
        self._segments.release(room.segment)

    def encode(self, value: Any, room: ArrayMemory | None = None) -> Payload:
        """Encode one value; `room` is the memory that already holds it. Raises DataError and StoreError."""
        if type(value) is bytes and len(value) <= INLINE:
            return Payload("bytes", value)
        if (plain := _PLAIN.get(type(value))) is not None and (not plain or len(value) <= plain):
            return Payload("plain", pickle.dumps(value, 5))
        kind = kind_of(value)
        if kind == "array" and _is_small(value):
            return _numbers(value)
        part = [value] if kind == "objects" else value
        ref = self._put(kind, [part], INLINE, room)
        return Payload(kind, ref.inline) if ref.inline else Payload(kind, b"", ref.slice(0))

    def encode_pieces(self, kind: Kind, pieces: Sequence[Any]) -> list[Payload]:
        """Encode the pieces of a round, as one block unless they are small."""
        if kind == "array" and all(map(_is_small, pieces)) and sum(one.nbytes for one in pieces) <= _INLINE_NUMBERS:
            return [_numbers(one) for one in pieces]
        limit = min(INLINE * len(pieces), _INLINE_ALL)
        ref = self._put(kind, pieces, limit)
        slices = [ref.slice(index) for index in range(len(pieces))]
        if ref.inline:
            return [Payload(kind, slice.inline) for slice in slices]
        return [Payload(kind, b"", slice) for slice in slices]

    def decode(self, payload: Payload, *, for_all: bool = False) -> Any:
        """Return the value that `encode` received; arrays and tables are read-only views. Raises the errors of
        `Blocks.get`, and MemberLost when the value is gone with its sender. `for_all`: all members receive it.
        """
        if payload.kind == "bytes":
            return payload.data
        if payload.kind == "plain":
            return pickle.loads(payload.data)
        value = self.decode_piece(payload, for_all=for_all)
        return value[0] if payload.kind == "objects" else value

    def decode_piece(self, payload: Payload, *, for_all: bool = False) -> Any:
        """Return a piece that `encode_pieces` received."""
        if payload.kind == "numbers":
            import numpy as np

            return np.frombuffer(payload.data, payload.dtype).reshape(payload.shape)
        if payload.slice is None:
            return decode(payload.data)
        found = self._read(payload.slice)
        return self._pulled(payload.slice, for_all) if found is None else decode(found)

    def _pulled(self, slice: Slice, for_all: bool) -> Any:
        """The value of a member on another host, or in the store. Raises MemberLost when it is gone with its member.

        A large value is pulled into a file of this host, which is removed at once. If it is for all members, the file
        stays for those that come later. A member that comes too late pulls it again.
        """
        try:
            value = self._blocks.get(slice, shared=self._one_host or for_all)
        except MissingError as error:
            raise MemberLost("the gang", [slice.name]) from error
        if not self._one_host:
            if for_all:
                self._common.append(slice)
            else:
                self._remove(slice)
            while len(self._common) > 1 and sum(one.part.length for one in self._common) > _COMMON:
                self._remove(self._common.popleft())
        return value

    def _remove(self, slice: Slice) -> None:
        if self._blocks.host is not None:
            self._blocks.host.path(self._blocks.on_host(slice.name)).unlink(missing_ok=True)

    def _read(self, slice: Slice) -> Buffer | None:
        """Return the bytes if another member of this host wrote them to shared memory; otherwise None."""
        host = self._blocks.host
        if self._segments is None or host is None or f"host:{host.host_id}" not in slice.locations:
            return None
        name = self._blocks.on_host(slice.name)
        with border(host.url, name):
            return self._segments.read(name, slice.part.offset, slice.part.length)

    def take_back(self, payload: Payload) -> None:
        """All receivers have the value: its shared memory may be reused."""
        if self._segments is not None and payload.slice is not None:
            self._segments.take_back(self._blocks.on_host(payload.slice.name))

    def close(self) -> None:
        """Free the kept shared memory. Values that other members have yet to receive stay."""
        while self._common:
            self._remove(self._common.popleft())
        if self._segments is not None:
            self._segments.close()


def _is_small(array: Any) -> bool:
    return array.nbytes <= INLINE and array.dtype.kind in _NUMBERS


def _numbers(array: Any) -> Payload:
    return Payload("numbers", array.tobytes(), None, array.dtype.str, array.shape)


def kind_of(value: Any) -> Kind:
    """Return the kind of block that encodes the value."""
    numpy, arrow = sys.modules.get("numpy"), sys.modules.get("pyarrow")
    if numpy is not None and type(value) is numpy.ndarray and value.ndim and not value.dtype.hasobject:
        return "array"
    if arrow is not None and isinstance(value, arrow.Table) and value.num_columns:
        return "table"
    return "objects"
