"""References to immutable blocks: they travel in ledgers, payloads and history instead of data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

Kind = Literal["objects", "table", "array"]
"""`objects`: a list of Python records; `table`: an Arrow table; `array`: a NumPy array, a record is `a[i]`."""


class Part(Struct, frozen=True, array_like=True, gc=False):
    """A run of bytes of a block that decodes by itself: the whole block, or the share of one consumer."""

    offset: int
    """First byte within the block; a multiple of 64."""
    length: int
    rows: int
    checksum: int
    """xxh3-64 of the bytes; 0: none. A block that is meant to stay in memory may have none."""
    digest: bytes = b""
    """SHA-256 of the bytes; present when the block was put in a store, checked before anything is decoded."""


class BlockRef(Struct, frozen=True, array_like=True, gc=False):
    """Identity (name, size, checksums) and locations (hints) of one block."""

    name: str
    """Attempt-unique path below the run: `<segment>/<partition>.<attempt>.<nonce>`."""
    kind: Kind
    size: int
    parts: tuple[Part, ...]
    """At least one part; a scattered block has one for each target partition, a cut block one for each chunk."""
    locations: tuple[str, ...] = ()
    """`inline`, `host:<host id>` (mapped there, pulled over TCP elsewhere), `store`, or `store:<run>` (the store, where
    the block belongs to another run); best first."""
    inline: bytes = b""

    @property
    def rows(self) -> int:
        parts = self.parts
        return parts[0].rows if len(parts) == 1 else sum(part.rows for part in parts)

    def slice(self, index: int) -> Slice:
        """Return part `index` of this block, alone."""
        part = self.parts[index]
        inline = self.inline[part.offset : part.offset + part.length] if self.inline else b""
        return Slice(self.name, self.kind, part, self.locations, inline)

    def in_store(self, digests: Sequence[bytes]) -> BlockRef:
        """The block with the store as a further location. `digests`: of each part; empty if the parts have theirs."""
        if "store" in self.locations:
            return self
        parts = tuple(map(_with_digest, self.parts, digests)) or self.parts
        return replace(self, parts=parts, locations=(*self.locations, "store"))


def _with_digest(part: Part, digest: bytes) -> Part:
    return replace(part, digest=digest)


class Slice(Struct, frozen=True, array_like=True, gc=False):
    """One part of a block with all a reader needs to get it."""

    name: str
    kind: Kind
    part: Part
    locations: tuple[str, ...]
    inline: bytes = b""
