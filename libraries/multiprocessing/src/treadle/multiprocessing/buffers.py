"""Values and arrays of several machines: the classes of the standard library, over memory that processes keep equal."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from multiprocessing import sharedctypes
from types import FunctionType, SimpleNamespace
from typing import Any

from treadle.primitives.objects import Handle
from treadle.primitives.objects.catalog.memory import MEMORY_BYTES, SharedAreas
from treadle.primitives.objects.memory_copies import Area

from .consistency import follow, leave
from .installation import FUNCTIONS
from .places import named

_Part = tuple[str, Handle[SharedAreas], int]
"""The object at the keeper with its name, and the number of the area in it."""
_lock = threading.RLock()
_here: weakref.WeakValueDictionary[tuple[str, int], Buffer] = weakref.WeakValueDictionary()
"""The buffers of this process, by their parts."""
_full = [0]
"""Objects at the keeper that had no room."""


class Buffer:
    """Takes the place of `multiprocessing.heap.BufferWrapper`."""

    def __init__(self, size: int, parts: Sequence[_Part] = ()) -> None:
        import numpy as np

        rests = range(max(1, size), 0, -MEMORY_BYTES)
        self._size, self._parts = size, parts or [_part(min(MEMORY_BYTES, rest)) for rest in rests]
        self._memory = np.zeros(size, np.uint8)
        for index, (name, at, number) in enumerate(self._parts):
            area = Area(self._memory[index * MEMORY_BYTES : (index + 1) * MEMORY_BYTES])
            follow(name, at, number, area)
            weakref.finalize(self, leave, name, area)
            _here.setdefault((name, number), self)

    def __reduce__(self) -> Any:
        return _arrived, (self._size, self._parts)

    def create_memoryview(self) -> memoryview:
        return self._memory.data


def _part(size: int) -> _Part:
    while True:
        name = f"memory-{_full[0]}"
        memory = named(name, SharedAreas)
        if (number := memory.add(size)) is not None:
            return name, memory, number
        _full[0] += 1


def _arrived(size: int, parts: Sequence[_Part]) -> Buffer:
    """Return the buffer of this process."""
    name, _, number = parts[0]
    with _lock:
        return _here.get((name, number)) or Buffer(size, parts)


def _over_buffers() -> dict[str, Any]:
    """The functions of `sharedctypes`, whose memory is a `Buffer`."""
    names = {**vars(sharedctypes), "heap": SimpleNamespace(BufferWrapper=Buffer)}
    for name in ("_new_value", *FUNCTIONS):
        standard = names[name]
        names[name] = FunctionType(standard.__code__, names, name, standard.__defaults__)
        names[name].__kwdefaults__ = standard.__kwdefaults__
    return names


functions = _over_buffers()
