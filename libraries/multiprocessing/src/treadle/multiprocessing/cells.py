"""Values and arrays of several machines: memory of this process, which is kept equal to that of other processes."""

from __future__ import annotations

import ctypes
import functools
import secrets
import weakref
from multiprocessing import sharedctypes
from typing import Any

from treadle.primitives.objects import Handle

from .consistency import Area, follow, leave
from .places import named
from .state import Memory
from .synchronize import RLock

_SMALL, _PART = 1 << 20, 16 << 20
"""Bytes up to which memory is with that of others at the keeper, and of the parts of larger memory."""
_Parts = list[tuple[str, Handle[Memory], int]]
"""Objects at the keeper with their names, and numbers of areas in them."""


_here: weakref.WeakValueDictionary[tuple[str, int], Any] = weakref.WeakValueDictionary()
"""What this process has, by its first part."""


@functools.cache
def _shared(kind: Any, size: int | None) -> Any:
    """The class of ctypes, with another pickle."""
    of = kind if size is None else kind * size
    return type(of.__name__, (of,), {"__reduce__": lambda found: (_arrived, (kind, size, found.treadle_parts))})


def _arrived(kind: Any, size: int | None, parts: _Parts) -> Any:
    import numpy as np

    first = parts[0][0], parts[0][2]
    if (known := _here.get(first)) is not None:
        return known
    cls = _shared(kind, size)
    memory = np.zeros(ctypes.sizeof(cls), np.uint8)
    found = _here[first] = cls.from_buffer(memory)
    found.treadle_parts = parts
    for index, (name, at, number) in enumerate(parts):
        follow(name, at, number, Area(memory[index * _PART : (index + 1) * _PART]))
        weakref.finalize(found, leave, name, number)
    return found


def _new(kind: Any, size: int | None) -> Any:
    kind = sharedctypes.typecode_to_type.get(kind, kind)  # type: ignore[attr-defined]
    count = ctypes.sizeof(kind) * (1 if size is None else size)
    return _arrived(
        kind, size, [_part(min(_PART, rest), alone=count > _SMALL) for rest in range(max(count, 1), 0, -_PART)]
    )


def _part(size: int, *, alone: bool) -> tuple[str, Handle[Memory], int]:
    name = f"memory-{secrets.token_hex(8)}" if alone else "memory"
    memory = named(name, Memory)
    return name, memory, int(memory.add(size))


def RawValue(kind: Any, *initial: Any) -> Any:
    found = _new(kind, None)
    found.__init__(*initial)
    return found


def RawArray(kind: Any, size_or_initializer: Any) -> Any:
    if isinstance(size_or_initializer, int):
        return _new(kind, size_or_initializer)
    found = _new(kind, len(size_or_initializer))
    found.__init__(*size_or_initializer)
    return found


def Value(kind: Any, *initial: Any, lock: Any = True) -> Any:
    return _locked(RawValue(kind, *initial), lock)


def Array(kind: Any, size_or_initializer: Any, *, lock: Any = True) -> Any:
    return _locked(RawArray(kind, size_or_initializer), lock)


def _locked(found: Any, lock: Any) -> Any:
    if lock is False:
        return found
    if lock in (True, None):
        lock = RLock()
    if not hasattr(lock, "acquire"):
        raise AttributeError(f"{lock!r} has no method 'acquire'")
    return sharedctypes.synchronized(found, lock)
