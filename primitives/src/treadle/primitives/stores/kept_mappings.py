"""Mappings of large files that are kept for the next use: mapping 100 MB takes longer than a sum over it."""

from __future__ import annotations

import os
from collections import OrderedDict
from contextlib import suppress
from mmap import ACCESS_READ, mmap

from .atomic_files import can_hold_descriptor, is_private, map_descriptor

_MOST_BYTES = max(512 << 20, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 16)
"""Bytes that a process keeps mapped by default: on most machines as many as the pool of removed block files holds."""
_MOST = 64
_Key = tuple[int, int, int]
"""Device, inode and size of a file."""


class KeptMappings:
    """Mappings of whole files, for one process. Thread-safe.

    They count as memory of the process, although their pages exist once on the host.
    """

    def __init__(self, kept_from: int, most: int = _MOST_BYTES, access: int = ACCESS_READ) -> None:
        """Mappings of files of `kept_from` bytes and more are kept, the last used ones of at most `most` bytes.

        `access`: as of `mmap`.
        """
        self._kept_from, self._most, self._access = kept_from, most, access
        self._kept: OrderedDict[_Key, _Kept] = OrderedDict()

    def get(self, descriptor: int) -> tuple[mmap | None, bool]:
        """Return the mapping of an open file, or None for one that cannot be kept, and whether the mapping is a new
        one. Raises OSError.
        """
        status = os.fstat(descriptor)
        key = status.st_dev, status.st_ino, status.st_size
        kept = self._kept.pop(key, None)
        is_new = kept is None or kept.is_removed()
        if is_new:
            kept = self._map(descriptor, status)
        if kept is None:
            return None, True
        self._kept[key] = kept
        return kept.mapping, is_new

    def _map(self, descriptor: int, status: os.stat_result) -> _Kept | None:
        if not self._kept_from <= status.st_size <= self._most or not is_private(status) or not can_hold_descriptor():
            return None
        self._make_room(status.st_size)
        # opened again: a lock of the descriptor must not last as long as the mapping
        flags = os.O_RDONLY if self._access == ACCESS_READ else os.O_RDWR
        own = os.open(f"/proc/self/fd/{descriptor}", flags | os.O_CLOEXEC)
        mapping = map_descriptor(own, status.st_size, self._access)
        if mapping is None:
            os.close(own)
            return None
        return _Kept(mapping, own)

    def _make_room(self, size: int) -> None:
        self.forget_removed()
        while self._kept and (len(self._kept) >= _MOST or size + sum(key[2] for key in list(self._kept)) > self._most):
            with suppress(KeyError):  # another thread was faster
                self._kept.popitem(last=False)

    def forget_removed(self) -> None:
        """Forget mappings of removed files, whose memory the kernel can then free."""
        for key, kept in list(self._kept.items()):
            if kept.is_removed():
                self._kept.pop(key, None)

    def close(self) -> None:
        """Forget all mappings; what refers to one keeps it."""
        self._kept.clear()


class _Kept:
    """A mapping, and a descriptor of its file without a lock."""

    def __init__(self, mapping: mmap, descriptor: int) -> None:
        self.mapping, self._descriptor = mapping, descriptor

    def is_removed(self) -> bool:
        return not os.fstat(self._descriptor).st_nlink

    def __del__(self) -> None:
        os.close(self._descriptor)
