"""Memory of this process for results of folds, used again once nobody refers to it: fresh pages have to be cleared."""

from __future__ import annotations

import ctypes
import mmap
import weakref
from typing import Any

from .values import kind_of

_LEAST = 1 << 20
"""Bytes below which the allocator's own memory is as good."""
_KEPT = 2
"""Results that may be in use while the next one is made."""


class KeptMemory:
    """Grows to what the largest results need, and goes with its last user."""

    def __init__(self) -> None:
        self._free: list[mmap.mmap] = []

    def array(self, like: Any) -> Any:
        """An array of this dtype and shape, its content undefined; None for what is small or no plain array."""
        if kind_of(like) != "array" or like.nbytes < _LEAST or not like.flags.c_contiguous:
            return None
        import numpy as np

        memory = self._take(like.nbytes)
        holder = (ctypes.c_ubyte * like.nbytes).from_buffer(memory)  # lives as long as any view of the array
        weakref.finalize(holder, self._give_back, memory).atexit = False
        return np.frombuffer(holder, like.dtype).reshape(like.shape)

    def _take(self, size: int) -> mmap.mmap:
        free, self._free = self._free, []
        fit = next((memory for memory in sorted(free, key=len) if size <= len(memory) <= 2 * size), None)
        self._free += [memory for memory in free if memory is not fit]
        return fit if fit is not None else _fresh(size)

    def _give_back(self, memory: mmap.mmap) -> None:
        """In any thread, at any time: should two of these meet, memory is merely not kept."""
        self._free = [*self._free, memory][-_KEPT:]


def _fresh(size: int) -> mmap.mmap:
    made = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        made.madvise(mmap.MADV_HUGEPAGE)
    return made
