"""Messages in a stream of bytes: lengths, then a head (MessagePack), then a tail (raw bytes, such as a block).

    4 bytes   length of the head, big-endian; at most 16 MiB
    8 bytes   length of the tail, big-endian
    head, tail

This module does no I/O, so that every shell (threads, asyncio, a test) follows the same rules.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from ..stores.atomic_files import Buffer
from .errors import WireError

LENGTHS = struct.Struct(">IQ")
HEAD_LIMIT = 16 << 20
_JOINED = 16 << 10
"""Bytes up to which one more copy is cheaper than one more vector."""
_SCRATCH = 64 << 10


def encode(head: bytes, tail: Buffer | Sequence[Buffer] = b"") -> list[Buffer]:
    """Return a frame as buffers for `sendmsg` or `writelines`; only a small tail is copied. Raises WireError for a long
    head.
    """
    if isinstance(tail, bytes) and len(head) + len(tail) <= _JOINED:  # the usual case
        return [b"".join((LENGTHS.pack(len(head), len(tail)), head, tail))]
    tails = [tail] if isinstance(tail, bytes | bytearray | memoryview) else list(tail)
    views = [view for one in tails if (view := memoryview(one).cast("B"))]
    length = sum(map(len, views))
    lengths = LENGTHS.pack(len(head), length)
    if len(head) + length <= _JOINED:
        return [b"".join((lengths, head, *views))]
    if len(head) <= _JOINED:
        return [lengths + head, *views]
    if len(head) > HEAD_LIMIT:
        raise WireError(f"a message has {len(head):,} bytes, {HEAD_LIMIT:,} are allowed", "Send the data as a tail.")
    return [lengths, head, *views]


def parse_lengths(data: Buffer, start: int, head_limit: int, tail_limit: int) -> tuple[int, int]:
    """Return the lengths of head and tail of the frame at `start`. Raises WireError when a limit is exceeded."""
    head, tail = LENGTHS.unpack_from(data, start)
    if head > head_limit or tail > tail_limit:
        raise WireError(
            f"the other side announces a message of {head:,} and {tail:,} bytes; {head_limit:,} and {tail_limit:,} "
            "are allowed",
            "It speaks another protocol, or the bytes were damaged on the way.",
        )
    return head, tail


class Decoder:
    """Decodes messages without tails. Receive into `room()`, then report the number of bytes with `advance`."""

    def __init__(self, head_limit: int = HEAD_LIMIT) -> None:
        self.head_limit = head_limit
        self._data = memoryview(bytearray(_SCRATCH))
        self._filled = 0

    def room(self) -> memoryview:
        """Return the buffer for the next bytes; never empty."""
        return self._data[self._filled :]

    def advance(self, count: int) -> list[bytes]:
        """Return the heads completed by `count` more bytes in the buffer. Raises WireError, after which it
        is unusable.
        """
        heads, start, filled = [], 0, self._filled + count
        while filled - start >= LENGTHS.size:
            size, _ = parse_lengths(self._data, start, self.head_limit, 0)
            body = start + LENGTHS.size
            if body + size > filled:
                break
            start = body + size
            heads.append(self._data[body:start].tobytes())
        self._filled, size = filled - start, len(self._data)
        if start == filled and size == _SCRATCH:
            return heads  # the usual case
        needed = _SCRATCH if not self._filled else 2 * size if self._filled == size else size
        if needed != size or (start and self._filled):
            self._keep(self._data[start:filled], needed)
        return heads

    def feed(self, data: Buffer) -> list[bytes]:
        """The same for bytes in another buffer."""
        heads: list[bytes] = []
        rest = memoryview(data)
        while rest:
            room = self.room()[: len(rest)]
            room[:] = rest[: len(room)]
            heads += self.advance(len(room))
            rest = rest[len(room) :]
        return heads

    def _keep(self, rest: memoryview, size: int) -> None:
        """Move an incomplete message to the front of a buffer that grows with received bytes, not with the announced
        length.
        """
        kept = bytes(rest)
        if size != len(self._data):
            self._data = memoryview(bytearray(size))
        self._data[: len(kept)] = kept
