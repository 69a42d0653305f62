"""Decoding treadle's own objects, by several threads at once.

msgspec fills in what it knows of a Struct when the type is first used, by Python code in which threads take turns; a
second thread that finds it half filled ends the process (SIGSEGV, msgspec 0.22). So types are made known one at a time.
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
    """The type, which any number of threads may decode from now on, with all types inside it."""
    if kind not in _known:
        with _lock:
            msgspec.json.Decoder(kind)
            _known.add(kind)
    return kind


def decoded(kind: type[T], name: str, data: Buffer) -> T:
    """The authentic object `name`. Raises CorruptError for one that another version of treadle wrote."""
    try:
        return msgspec.msgpack.decode(data, type=known(kind))
    except msgspec.MsgspecError as error:
        raise CorruptError(
            f"{name} is not what this version of treadle writes: {error}",
            "Use one version of treadle for a run, its drivers and its commands; or start a new run.",
        ) from error
