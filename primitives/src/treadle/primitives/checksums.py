"""Checksums of blocks: xxh3 against damage, SHA-256 against forgery."""

from __future__ import annotations

from collections.abc import Sequence

import xxhash

from .encoding.references import Part
from .stores.atomic_files import Buffer


def is_sound(data: Buffer, part: Part) -> bool:
    return xxhash.xxh3_64_intdigest(data) == part.checksum


def xxh3(buffers: Sequence[Buffer]) -> int:
    if len(buffers) == 1:
        return xxhash.xxh3_64_intdigest(buffers[0])
    checksum = xxhash.xxh3_64()
    for buffer in buffers:
        checksum.update(buffer)
    return checksum.intdigest()


def sha256(buffers: Sequence[Buffer]) -> bytes:
    import hashlib  # OpenSSL: processes that only pass host blocks on need not load it

    digest = hashlib.sha256()
    for buffer in buffers:
        digest.update(buffer)
    return digest.digest()


def part_digest(part: Part, data: Buffer) -> bytes:
    """The digest of a part whose bytes are `data`."""
    return part.digest or sha256([data])
