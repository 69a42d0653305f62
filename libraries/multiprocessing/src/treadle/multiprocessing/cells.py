"""Values and arrays of several machines: their elements are at the keeper, and each access is a call."""

from __future__ import annotations

import ctypes
from multiprocessing import sharedctypes
from typing import Any

from treadle.primitives.errors import UsageError
from treadle.primitives.objects import List

from .places import new
from .synchronize import RLock


class RawArray:
    """As an array of ctypes, but at the keeper."""

    def __init__(self, kind: Any, size_or_initializer: Any) -> None:
        self._kind = sharedctypes.typecode_to_type.get(kind, kind)  # type: ignore[attr-defined]
        if not issubclass(self._kind, ctypes._SimpleCData):
            text = f"{self._kind.__name__} has parts, and the elements of this array are not in memory"
            raise UsageError(text, "Use an array for each part, or a shared object with a class of yours.")
        sized = isinstance(size_or_initializer, int)
        elements = list((self._kind * size_or_initializer)()) if sized else self._checked(list(size_or_initializer))
        self._size, self._cells = len(elements), new(List, elements)

    @property
    def is_text(self) -> bool:
        """Whether the elements are characters."""
        return self._kind is ctypes.c_char

    def _checked(self, given: Any) -> list[Any]:
        return list((self._kind * len(given))(*given))

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, place: Any) -> Any:
        found = self._cells.get(place)
        return b"".join(found) if self.is_text and isinstance(place, slice) else found

    def __setitem__(self, place: Any, value: Any) -> None:
        if not isinstance(place, slice):
            self._cells.set(place, self._kind(value).value)
        elif len(range(self._size)[place]) == len(value):
            self._cells.set(place, self._checked(value))
        else:
            raise ValueError("Can only assign sequence of same size")

    @property
    def raw(self) -> bytes:
        """All bytes of a string."""
        return bytes(self[:])

    @raw.setter
    def raw(self, value: bytes) -> None:
        self[: len(value)] = [value[at : at + 1] for at in range(len(value))]

    @property
    def value(self) -> Any:
        """The only element; of a string the bytes before the first zero."""
        return self.raw.partition(b"\0")[0] if self._size != 1 else self[0]

    @value.setter
    def value(self, value: Any) -> None:
        if self._size == 1:
            self[0] = value
        else:
            self.raw = value + b"\0" * (len(value) < self._size)


class _Travels:
    """Pickles a wrapper of the standard library, which expects memory."""

    def __reduce__(self: Any) -> Any:
        return type(self), (self._obj, self._lock)


class SharedValue(_Travels, sharedctypes.Synchronized):  # type: ignore[type-arg]
    """A value with a lock."""


class SharedArray(_Travels, sharedctypes.SynchronizedArray):  # type: ignore[type-arg]
    """An array with a lock."""


class SharedString(_Travels, sharedctypes.SynchronizedString):
    """An array of characters with a lock."""


def RawValue(kind: Any, *initial: Any) -> RawArray:
    return RawArray(kind, list(initial) or 1)


def Value(kind: Any, *initial: Any, lock: Any = True) -> Any:
    return _locked(SharedValue, RawValue(kind, *initial), lock)


def Array(kind: Any, size_or_initializer: Any, *, lock: Any = True) -> Any:
    found = RawArray(kind, size_or_initializer)
    return _locked(SharedString if found.is_text else SharedArray, found, lock)


def _locked(cls: Any, found: RawArray, lock: Any) -> Any:
    if lock is False:
        return found
    if lock in (True, None):
        lock = RLock()
    if not hasattr(lock, "acquire"):
        raise AttributeError(f"{lock!r} has no method 'acquire'")
    return cls(found, lock)
