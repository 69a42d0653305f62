"""Blocks whose bytes pass once: parts that were encoded before they are put, and their index made in passing."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Protocol

import xxhash

from ..stores.atomic_files import Buffer
from .codec import pieces_head
from .references import Part


class EncodedPart(Protocol):
    """A part that was encoded in pieces, each a part by itself, because it does not fit into memory.

    Its pieces can be iterated more than once.
    """

    @property
    def rows(self) -> int: ...

    @property
    def lengths(self) -> Sequence[int]:
        """Bytes of each piece; at least one piece."""

    def encoded(self) -> Iterator[Buffer]:
        """The pieces."""


class BlockIndex:
    """The index of a block, made while its bytes pass."""

    def __init__(self, *, digests: bool) -> None:
        self.parts: list[Part] = []
        self.size = 0
        self._digests = digests

    def of(self, parts: Sequence[EncodedPart]) -> Iterator[Buffer]:
        """The bytes of the parts, one after the other."""
        import hashlib

        for part in parts:
            checksum, digest, start = xxhash.xxh3_64(), hashlib.sha256() if self._digests else None, self.size
            for buffer in itertools.chain(filter(None, [pieces_head(part.lengths)]), part.encoded()):
                checksum.update(buffer)
                if digest is not None:
                    digest.update(buffer)
                self.size += len(buffer)
                yield buffer
            found = digest.digest() if digest is not None else b""
            self.parts.append(Part(start, self.size - start, part.rows, checksum.intdigest(), found))
