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

Packed = tuple[Any, ...]
"""The pickle, then its buffers."""


def pack(value: object, refer: Callable[[object], object] | None = None) -> Packed:
    """Return the value by value. Raises the error of the object that cannot be pickled.

    `refer` returns a plain name for an object that stays outside, such as a future, and None for every other object.
    """
    buffers: list[pickle.PickleBuffer] = []
    data = io.BytesIO()
    pickler = _pickler()(data, protocol=5, buffer_callback=lambda buffer: _keep_inside(buffers, buffer))
    if refer is not None:
        pickler.persistent_id = refer
    pickler.dump(value)
    return (data.getvalue(), *buffers)


def unpack(packed: Packed, resolve: Callable[[Any], object] | None = None) -> Any:
    """Return a packed value. It is unpickled: pass only authentic records. Raises what its classes raise.

    `resolve` returns the object for a name of `refer`.
    """
    data, *buffers = packed
    unpickler = pickle.Unpickler(io.BytesIO(data), buffers=buffers)
    if resolve is not None:
        unpickler.persistent_load = resolve  # type: ignore[method-assign]
    return unpickler.load()


def _pickler() -> Any:
    import cloudpickle  # not needed where nothing is by value

    return cloudpickle.Pickler


def _keep_inside(outside: list[pickle.PickleBuffer], buffer: pickle.PickleBuffer) -> bool:
    """Whether the pickle must hold the buffer itself, because its bytes are not contiguous."""
    try:
        buffer.raw()
    except BufferError:
        return True
    outside.append(buffer)
    return False
