"""Where the shared objects of a program live: at one keeper, which the first process starts and which ends with it."""

from __future__ import annotations

import contextlib
import os
import secrets
import tempfile
import threading
from concurrent.futures import Future
from multiprocessing import util
from multiprocessing.process import current_process
from pathlib import Path
from typing import Any, TypeVar

from treadle.primitives.objects import Handle, Keepers
from treadle.primitives.objects.client_session import Access
from treadle.primitives.objects.handle import create

from .state import Packed, Presence

T = TypeVar("T")
_PLACE = "treadle_objects"
"""Key of the configuration that each process inherits from the process that started it."""
_SMALL = 64 << 10
"""Bytes above which a pickle is a file, so that large items stay out of the keeper."""
_lock, _beginning = threading.RLock(), threading.RLock()
_presence: dict[tuple[int, Access], int] = {}


def place() -> Access:
    """Return where the objects of this program live. Starts the keeper in the first process."""
    config: dict[str, Any] = current_process()._config  # type: ignore[attr-defined]
    with _lock:
        if _PLACE not in config:
            folder = os.path.join(util.get_temp_dir(), "treadle")
            keepers = Keepers(folder)
            os.mkdir(os.path.join(folder, "large"))
            config[_PLACE] = keepers.access

            def close() -> None:
                config.pop(_PLACE, None)
                keepers.close()

            util.Finalize(None, close, exitpriority=-50)  # after the children ended, before the folder is removed
        found: Access = config[_PLACE]
    return found


def inherited() -> dict[str, Any]:
    """Return the configuration by which another process finds the objects."""
    return {_PLACE: place()}


def new(cls: type[T], *arguments: Any) -> Handle[T]:
    """Make an object, which lives as long as the program."""
    return create(place(), f"{cls.__name__}-{secrets.token_hex(8)}", cls, arguments, {})


def named(name: str, cls: type[T]) -> Handle[T]:
    """Return the object of this name, which all processes of the program share."""
    return create(place(), name, cls, (), {})


def presence() -> int:
    """Return the session that lives as long as this process: the keeper learns from its end that the process died."""
    key = os.getpid(), place()
    if key not in _presence:
        with _beginning:
            if key not in _presence:
                _presence[key] = _begin_presence()
    return _presence[key]


def _begin_presence() -> int:
    answer: Future[int] = Future()

    def stay() -> None:
        try:
            answer.set_result(named("presence", Presence).number())
        except Exception as error:  # noqa: BLE001  for the caller
            answer.set_exception(error)
        else:
            threading.Event().wait()

    threading.Thread(target=stay, name="treadle-presence", daemon=True).start()
    return answer.result()


def _folder() -> Path:
    return Path(place().place[1]).parent / "large"


def packed(data: bytes) -> Packed:
    """Return the bytes, or the name of a file that holds them."""
    if len(data) <= _SMALL:
        return data
    descriptor, name = tempfile.mkstemp(dir=_folder())
    with open(descriptor, "wb") as file:
        file.write(data)
    return name


def unpacked(item: Packed, *, keep: bool = False) -> bytes:
    """Return the bytes of an item, and remove its file unless others will read it."""
    if isinstance(item, bytes):
        return item
    data = Path(item).read_bytes()
    if not keep:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(item)
    return data
