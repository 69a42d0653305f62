"""User functions that need memory."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path


def allocate(size: int) -> int:
    """Allocates `size` bytes for a moment. Returns the bytes that this process may allocate in total."""
    bytearray(size)
    return resource.getrlimit(resource.RLIMIT_DATA)[0]


def replace_worker(mark: str) -> str:
    """Ends its process, except the second time."""
    if not Path(mark).exists():
        Path(mark).touch()
        os._exit(3)
    return mark


def reverse(number: int) -> tuple[int, str]:
    return -number, f"{number:01000}"


def ascending(values: Iterator[tuple[int, str]]) -> list[object]:
    """[records, whether their keys ascend]."""
    count, last, fine = 0, -(1 << 60), True
    for key, _ in values:
        count, fine, last = count + 1, fine and last < key, key
    return [count, fine]


def filled(number: int, size: int) -> bytes:
    return bytes([number]) * size


def next_byte(data: bytes) -> bytes:
    return bytes([data[0] + 1]) * len(data)


def first_byte(data: bytes) -> int:
    return data[0]
