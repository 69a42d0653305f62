"""Where the processes of a program run, and where its shared objects live: at one keeper, which the first process
starts and which ends with it.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sys
import tempfile
import threading
from concurrent.futures import Future
from multiprocessing import util
from multiprocessing.process import current_process
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from treadle.primitives.objects import Handle, Keepers
from treadle.primitives.objects.client_session import RUN, Access
from treadle.primitives.objects.handle import create
from treadle.primitives.sealing import SealedStore

from .state import Packed, Presence

if TYPE_CHECKING:
    from treadle.client import Session

T = TypeVar("T")
_PLACE = "treadle_objects"
"""Key of the configuration that each process inherits from the process that started it."""
_SMALL = 64 << 10
"""Bytes above which a pickle is a file, so that large items stay out of the keeper."""
_lock, _beginning = threading.RLock(), threading.RLock()
_presence: dict[tuple[int, Access], int] = {}


_executors: list[str] = []
_sessions: list[Session] = []


def set_executor(name: str) -> None:
    """Let the processes that this one starts run at the workers of an executor: `lambda`, `openwhisk`, or `local` for
    all machines of a cluster. Raises RuntimeError when a process or a shared object has been made here.
    """
    if _PLACE in current_process()._config:  # type: ignore[attr-defined]
        raise RuntimeError("set the executor before the first process, lock, queue or pool")
    _executors[:] = [name]


def workers() -> Session | None:
    """Return the session at whose workers processes run; None: they run on this machine."""
    if _executors and not _sessions:
        from treadle.client import session  # not installed at workers

        name = os.path.basename(sys.argv[0]).partition(".")[0] or "program"
        _sessions.append(session(name, executor=_executors[0]))
    return _sessions[0] if _sessions else None


def take_by_value() -> None:
    """Modules of the program's project are not at the workers: send their functions and classes with each process."""
    from treadle.client.project_modules import take_by_value

    take_by_value()


def place() -> Access:
    """Return where the objects of this program live. Starts the keeper in the first process."""
    config: dict[str, Any] = current_process()._config  # type: ignore[attr-defined]
    with _lock:
        if _PLACE not in config:
            folder = os.path.join(util.get_temp_dir(), "treadle")
            at = workers()
            keepers = at.keepers() if at else Keepers(folder)
            os.makedirs(os.path.join(folder, "large"))
            config[_PLACE] = keepers.access

            def close() -> None:
                config.pop(_PLACE, None)
                (at.end if at else keepers.close)()

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


def packed(data: bytes) -> Packed:
    """Return the bytes, or the name of a file or of an object in the store that holds them."""
    if len(data) <= _SMALL:
        return data
    _, key, folder, _ = place().place
    if key.startswith(RUN):
        name = f"{folder}/large/{secrets.token_hex(16)}"
        SealedStore(place().store, place().key).put(name, data)
        return name
    descriptor, name = tempfile.mkstemp(dir=Path(key).parent / "large")
    with open(descriptor, "wb") as file:
        file.write(data)
    return name


def unpacked(item: Packed, *, keep: bool = False) -> bytes:
    """Return the bytes of an item, and remove its file or object unless others will read it."""
    if isinstance(item, bytes):
        return item
    here = os.path.isabs(item)
    data = Path(item).read_bytes() if here else bytes(SealedStore(place().store, place().key).get(item))
    if not keep:
        remove(item)
    return data


def remove(item: str) -> None:
    """Remove the file or object of an item."""
    if not os.path.isabs(item):
        place().store.delete([item])
        return
    with contextlib.suppress(FileNotFoundError):
        os.unlink(item)
