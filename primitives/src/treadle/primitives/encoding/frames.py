"""The frame around the bytes of one part: a header, meta, and buffers that can be used in place.

Integers are little-endian:

    magic "TRD" and version | form (1 byte) | 4 bytes zero | number of buffers (8) | length of meta (8) | total (8)
    length of each buffer (8 each) | meta | then each buffer, at the next multiple of 64
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from ..errors import CorruptError
from ..stores.atomic_files import Buffer

ALIGNMENT = 64
SMALL = 1 << 12
"""Bytes from which a buffer is written in place, instead of being joined to its neighbours."""
_MAGIC = b"TRD\x01"
_HEADER = struct.Struct("<4sB3xQQQ")


def frame(form: int, meta: bytes, buffers: Sequence[Sequence[Buffer]]) -> list[Buffer]:
    """The part; each of `buffers` is given as pieces to be joined."""
    lengths = [sum(map(len, pieces)) for pieces in buffers]
    head = _HEADER.size + 8 * len(lengths) + len(meta)
    total = _aligned(head) + sum(map(_aligned, lengths))
    header = _HEADER.pack(_MAGIC, form, len(lengths), len(meta), total)
    parts: list[Buffer] = [header, struct.pack(f"<{len(lengths)}Q", *lengths), meta, bytes(-head % ALIGNMENT)]
    for pieces, length in zip(buffers, lengths, strict=True):
        parts.extend(pieces)
        parts.append(bytes(-length % ALIGNMENT))
    return _coalesced(parts)


def frame_head(form: int, lengths: Sequence[int]) -> bytes:
    """Return the bytes before buffers whose lengths are multiples of 64, for a part without meta."""
    head = _HEADER.size + 8 * len(lengths)
    header = _HEADER.pack(_MAGIC, form, len(lengths), 0, _aligned(head) + sum(lengths))
    return header + struct.pack(f"<{len(lengths)}Q", *lengths) + bytes(-head % ALIGNMENT)


def small_frame(form: int, meta: bytes) -> bytes:
    """Return the `frame` of a short meta alone: most parts of a run of many small partitions."""
    head = _HEADER.size + len(meta)
    padding = -head % ALIGNMENT
    return _HEADER.pack(_MAGIC, form, 0, len(meta), head + padding) + meta + bytes(padding)


def _coalesced(parts: Sequence[Buffer]) -> list[Buffer]:
    """Join neighbouring small buffers: a list of many small arrays must not become a vector of many small writes."""
    joined: list[Buffer] = []
    small: list[Buffer] = []
    for part in parts:
        if len(part) < SMALL:
            small.append(part)
            continue
        joined += [b"".join(small), part]
        small = []
    joined.append(b"".join(small))
    return [part for part in joined if len(part)]


def unframe(data: Buffer) -> tuple[int, memoryview, list[memoryview]]:
    """Return (form, meta, buffers) of a part, as read-only views of it. Raises CorruptError when it is not a part."""
    view = memoryview(data).cast("B").toreadonly()
    if len(view) < _HEADER.size:
        raise _torn()
    magic, form, count, meta_length, total = _HEADER.unpack_from(view)
    head = _HEADER.size + 8 * count + meta_length
    if magic != _MAGIC or total != len(view) or head > total:
        raise _torn()
    lengths = struct.unpack_from(f"<{count}Q", view, _HEADER.size)
    if _aligned(head) + sum(map(_aligned, lengths)) != total:
        raise _torn()
    buffers, start = [], _aligned(head)
    for length in lengths:
        buffers.append(view[start : start + length])
        start += _aligned(length)
    return form, view[head - meta_length : head], buffers


def _torn() -> CorruptError:
    return CorruptError("a part is cut off, or is not one of treadle's", "Its producer must run again.")


def _aligned(length: int) -> int:
    return length + -length % ALIGNMENT
