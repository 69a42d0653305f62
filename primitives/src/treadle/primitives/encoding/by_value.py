"""Python values with everything that only their process defines: functions and classes of scripts and notebooks.

cloudpickle writes functions and classes of `__main__`, and of modules registered with it, by value. The buffers of
arrays stay outside the pickle (PEP 574), so that a packed value is a record that a block holds without a copy, and
arrays come back as read-only views of the block.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from typing import Any

from .codec import keep_outside
from .read_only import ATOMS

Packed = tuple[Any, ...]
"""The pickle, then its buffers."""
_PLAIN = frozenset({tuple, list, dict})
_MANY = 10_000
"""Objects looked at one by one: a list may hold itself."""


def pack(
    value: object, refer: Callable[[object], object] | None = None, known: frozenset[type] = frozenset()
) -> Packed:
    """Return the value by value. Raises the error of the object that cannot be pickled.

    `refer` returns a plain name for an object that stays outside, such as a future, and None for every other object. It
    may be left out for atoms, tuples, lists and dicts. `known`: classes of tuples that every process can import.
    """
    if is_plain(value, _PLAIN | known):
        return (pickle.dumps(value, protocol=5),)
    buffers: list[pickle.PickleBuffer] = []
    return (_pickled(value, refer, lambda buffer: keep_outside(buffers, buffer)), *buffers)


def is_plain(value: object, containers: frozenset[type] = _PLAIN) -> bool:
    """Whether the value consists of atoms in these containers: cloudpickle has nothing to add."""
    left: list[Any] = [value]
    for one in left:
        kind = type(one)
        if kind in ATOMS:
            continue
        if kind not in containers or len(left) > _MANY:
            return False
        members = (*one, *one.values()) if kind is dict else one
        if not ATOMS.issuperset(map(type, members)):
            left += members
    return True


def pack_whole(value: object) -> bytes:
    """Return the value by value as one pickle, whose arrays `pickle.loads` makes writable."""
    return _pickled(value, None, None)


def _pickled(value: object, refer: Callable[[object], object] | None, keep: Callable[[Any], bool] | None) -> bytes:
    from .by_value_pickler import ByValuePickler, ReferringPickler  # not needed where nothing is by value

    data = io.BytesIO()
    pickler = (ByValuePickler if refer is None else ReferringPickler)(data, protocol=5, buffer_callback=keep)
    pickler.refer = refer
    pickler.dump(value)
    return data.getvalue()


def unpack(packed: Packed, resolve: Callable[[Any], object] | None = None) -> Any:
    """Return a packed value. It is unpickled: pass only authentic records. Raises what its classes raise.

    `resolve` returns the object for a name of `refer`.
    """
    data, *buffers = packed
    if resolve is None:
        return pickle.loads(data, buffers=buffers)
    unpickler = _Unpickler(io.BytesIO(data), buffers=buffers)
    unpickler.resolve = resolve
    return unpickler.load()


class _Unpickler(pickle.Unpickler):
    resolve: Callable[[Any], object]

    def persistent_load(self, name: Any) -> object:
        return self.resolve(name)
