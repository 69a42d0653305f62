"""Messages in a stream of bytes: lengths, then a head (MessagePack), then a tail (raw bytes, such as a block).

    4 bytes   length of the head, big-endian; at most 16 MiB
    8 bytes   length of the tail, big-endian
    head, tail

Nothing here reads or writes: bytes in, frames out, so that every shell (threads, asyncio, a test) has the same rules.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from ..whole_files import Buffer
from .errors import WireError

LENGTHS = struct.Struct(">IQ")
HEAD_LIMIT = 16 << 20
TAIL_LIMIT = 1 << 30
"""Unless the reader says otherwise; a tail is given memory only as it comes."""
_JOINED = 16 << 10
"""Up to so many bytes, one more copy is cheaper than one more vector."""
_SCRATCH = 64 << 10


class Frame(NamedTuple):
    head: bytes
    tail: bytes | bytearray


def encode(head: bytes, tail: Buffer | Sequence[Buffer] = b"") -> list[Buffer]:
    """A frame as buffers for `sendmsg` or `writelines`; the tail is not copied unless it is small."""
    if isinstance(tail, bytes) and len(head) + len(tail) <= _JOINED:  # nearly every message
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
    """Lengths of head and tail of the frame that begins at `start`. Raises WireError for more than the limits."""
    head, tail = LENGTHS.unpack_from(data, start)
    if head > head_limit or tail > tail_limit:
        raise WireError(
            f"the other side announces a message of {head:,} and {tail:,} bytes; {head_limit:,} and {tail_limit:,} "
            "are allowed",
            "It speaks another protocol, or the bytes were damaged on the way.",
        )
    return head, tail


class Decoder:
    """Bytes in, frames out. Either `feed`, or receive into `room()` and say how much came with `advance`.

    A tail that did not come whole with its head is received straight into a buffer of its size.
    """

    def __init__(self, head_limit: int = HEAD_LIMIT, tail_limit: int = TAIL_LIMIT) -> None:
        self.head_limit, self.tail_limit = head_limit, tail_limit
        self._scratch = bytearray(_SCRATCH)
        self._filled = 0
        self._head = b""
        self._tail: bytearray | None = None
        self._tail_filled = 0

    def room(self) -> memoryview:
        """Where the next bytes belong; never empty."""
        if self._tail is not None:
            return memoryview(self._tail)[self._tail_filled :]
        return memoryview(self._scratch)[self._filled :]

    def advance(self, count: int) -> list[Frame]:
        """Frames that are whole now that `count` more bytes are in the room. Raises WireError; then give up."""
        if self._tail is None:
            self._filled += count
            return self._frames()
        self._tail_filled += count
        if self._tail_filled < len(self._tail):
            return []
        frame, self._tail = Frame(self._head, self._tail), None
        return [frame]

    def feed(self, data: Buffer) -> list[Frame]:
        """Frames that are whole with these bytes. Raises WireError; then give up."""
        frames: list[Frame] = []
        rest = memoryview(data).cast("B")
        while rest:
            room = self.room()
            count = min(len(room), len(rest))
            room[:count] = rest[:count]
            frames += self.advance(count)
            rest = rest[count:]
        return frames

    @property
    def between(self) -> bool:
        """Whether nothing of a frame has come that is not whole."""
        return self._tail is None and self._filled == 0

    def _frames(self) -> list[Frame]:
        frames, start, needed = [], 0, 0
        data = memoryview(self._scratch)
        while self._tail is None and self._filled - start >= LENGTHS.size:
            head, tail = parse_lengths(data, start, self.head_limit, self.tail_limit)
            body = start + LENGTHS.size + head
            if body > self._filled:
                needed = LENGTHS.size + head
                break
            self._head = bytes(data[start + LENGTHS.size : body])
            start = min(body + tail, self._filled)
            if body + tail <= self._filled:
                frames.append(Frame(self._head, bytes(data[body:start])))
            else:
                self._tail = bytearray(tail)
                self._tail_filled = start - body
                self._tail[: self._tail_filled] = data[body:start]
        self._keep(start, max(needed, _SCRATCH))
        return frames

    def _keep(self, start: int, size: int) -> None:
        """The beginning of an unfinished frame goes to the front, and the whole of it has room."""
        if start == 0 and size == len(self._scratch):
            return
        rest = bytes(memoryview(self._scratch)[start : self._filled])
        if size != len(self._scratch):
            self._scratch = bytearray(size)
        self._scratch[: len(rest)] = rest
        self._filled = len(rest)
