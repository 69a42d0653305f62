"""Thread-safe decoding of treadle's own objects.

When a type is first used, msgspec completes its record of the Struct with Python code in which threads can switch. A
second thread that finds the record incomplete ends the process (SIGSEGV, msgspec 0.22). So types are registered one at
a time.
"""

from __future__ import annotations

import threading
from typing import Any, TypeVar

import msgspec

from ..errors import CorruptError
from ..stores.atomic_files import Buffer

T = TypeVar("T")
_known: set[Any] = set()
_lock = threading.Lock()


def known(kind: type[T]) -> type[T]:
    """Register the type and all types inside it; any number of threads may decode from it afterwards."""
    if kind not in _known:
        with _lock:
            msgspec.json.Decoder(kind)
            _known.add(kind)
    return kind


def decoded(kind: type[T], name: str, data: Buffer) -> T:
    """Decode the authentic object `name`. Raises CorruptError for an object that another version of treadle wrote."""
    try:
        return msgspec.msgpack.decode(data, type=known(kind))
    except msgspec.MsgspecError as error:
        raise CorruptError(
            f"{name} is not what this version of treadle writes: {error}",
            "Use one version of treadle for a run, its drivers and its commands; or start a new run.",
        ) from error
