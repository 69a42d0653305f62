"""When processes of several machines see each other's changes of values and arrays.

The keeper has the memory, and each process works on a copy. `publish` sends the changes of this process: before it
releases a lock, sends a message, sets an event, comes to a barrier, starts a process or ends. `refresh` fetches the
changes of others: after it took a lock, got a message, saw an event, passed a barrier or joined a process. A thread
does both now and then, for programs that change memory without any of these.
"""

from __future__ import annotations

import contextlib
import threading
import time
from multiprocessing import util

from treadle.primitives.errors import TreadleError
from treadle.primitives.objects import Handle
from treadle.primitives.objects.catalog.memory import SharedAreas
from treadle.primitives.objects.memory_copies import Area, AreaCopies

_SOON, _LATER = 0.1, 1.0
"""Seconds between two looks of the thread: after a change, and at most."""
_lock = threading.RLock()
_memories: dict[str, AreaCopies] = {}


def follow(name: str, memory: Handle[SharedAreas], number: int, area: Area) -> None:
    """Let an area of the memory of this name take part, with all that the keeper has of it."""
    with _lock:
        publish()
        if not _memories:
            threading.Thread(target=_serve, name="treadle-memory", daemon=True).start()
            util.Finalize(None, publish, exitpriority=100)
        _memories.setdefault(name, AreaCopies(memory)).add(number, area)


def leave(name: str, area: Area) -> None:
    """Follow an area no longer once its changes are sent."""
    _memories[name].unused.append(area)


def publish() -> bool:
    """Send the changes of this process; returns whether there were any."""
    with _lock:
        return max((copies.publish() for copies in _memories.values()), default=False)


def refresh() -> bool:
    """Fetch the changes of other processes; returns whether there were any."""
    with _lock:
        return max((copies.refresh() for copies in _memories.values()), default=False)


def _serve() -> None:
    pause = _SOON
    with contextlib.suppress(TreadleError):  # the keeper has ended
        while True:
            time.sleep(pause)
            changed = [publish(), refresh()]
            pause = _SOON if any(changed) else min(_LATER, 2 * pause)
