"""Where the processes of a program run, and where its shared objects live: at one keeper, which the first process
starts and which ends with it.
"""

from __future__ import annotations

import os
import secrets
import sys
import threading
from multiprocessing import util
from multiprocessing.process import current_process
from typing import TYPE_CHECKING, Any, TypeVar

from treadle.primitives.objects import Handle, Keepers, large_values
from treadle.primitives.objects.client_session import RUN, Access, ClientSession
from treadle.primitives.objects.handle import create
from treadle.primitives.objects.large_values import Packed

from .consistency import publish, refresh

if TYPE_CHECKING:
    from treadle.client import Session

T = TypeVar("T")
_PLACE = "treadle_objects"
"""Key of the configuration that each process inherits from the process that started it."""
_lock, _beginning = threading.RLock(), threading.RLock()
_presence: dict[tuple[int, Access], ClientSession] = {}
_forbidden: list[bool] = []
_executors: list[str] = []
_sessions: list[Session] = []
"""At most one executor, and its session."""


def set_executor(name: str) -> None:
    """Let the processes that this one starts run at the workers of an executor: `lambda`, `openwhisk`, or `local` for
    all machines of a cluster. Raises RuntimeError when a process or a shared object has been made here.
    """
    if _PLACE in current_process()._config:  # type: ignore[attr-defined]
        raise RuntimeError("set the executor before the first process, lock, queue or pool")
    _executors[:] = [name]


def forbid() -> None:
    """Refuse to make objects: this process is a fork server, which imports libraries."""
    _forbidden.append(True)


def workers() -> Session | None:
    """Return the session at whose workers processes run; None: they run on this machine."""
    with _lock:
        if _executors and not _sessions:
            from treadle.client import session  # not installed at workers

            name = os.path.basename(sys.argv[0]).partition(".")[0] or "program"
            _sessions.append(session(name, executor=_executors[0]))
        return _sessions[0] if _sessions else None


def place() -> Access:
    """Return where the objects of this program live. Starts the keeper in the first process."""
    config: dict[str, Any] = current_process()._config  # type: ignore[attr-defined]
    with _lock:
        if _PLACE not in config:
            if _forbidden:
                raise ImportError("a library that makes a lock or queue is imported by each process")
            folder = os.path.join(util.get_temp_dir(), "treadle")
            at = workers()
            keepers = at.keepers() if at else Keepers(folder)
            config[_PLACE] = keepers.access

            def close() -> None:
                config.pop(_PLACE, None)
                _sessions.clear()
                (at.end if at else keepers.close)()

            util.Finalize(None, close, exitpriority=-50)  # after the children ended, before the folder is removed
        found: Access = config[_PLACE]
    return found


def spans_machines() -> bool:
    """Return whether processes of the program run at workers, here or where it began."""
    return place().place[1].startswith(RUN)


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
                _presence[key] = _lasting_session(key[1])
    return _presence[key].number


def _lasting_session(at: Access) -> ClientSession:
    """The session of the main thread; in other threads a session without an owner."""
    is_main = threading.current_thread() is threading.main_thread()
    session = at.session(_PLACE) if is_main else ClientSession(at, at.shard_of(_PLACE), owned=False)
    session.begin()
    session.keep()  # the keeper reports the end of a session from which it has had a message
    return session


def packed(data: bytes, least: int = large_values.LARGE) -> Packed:
    publish()
    return large_values.packed(place(), data, least)


def unpacked(item: Packed, *, keep: bool = False) -> bytes:
    refresh()
    return large_values.unpacked(place(), item, keep=keep)


def remove(item: Packed) -> None:
    large_values.remove(place(), item)
