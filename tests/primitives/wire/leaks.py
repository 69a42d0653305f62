"""Resources that a test must not leave behind: threads, sockets and open files."""

from __future__ import annotations

import contextlib
import gc
import os
import threading
from collections import Counter
from collections.abc import Iterator

from treadle.primitives.stores import page_pool, shared_memory


@contextlib.contextmanager
def nothing_left() -> Iterator[None]:
    """Fails when any count is higher at the end than at the beginning."""
    threads, files = set(threading.enumerate()), open_files()
    yield
    gc.collect()  # frames of caught errors
    for kept in (shared_memory._views, page_pool._mappings):  # private: no other user forgets kept mappings
        kept.close()
    assert set(threading.enumerate()) - threads == set()
    assert open_files() - files == Counter()


def open_files() -> Counter[str]:
    """Kinds and names of this process's descriptors, with counts."""
    found: Counter[str] = Counter()
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            found[os.readlink(f"/proc/self/fd/{descriptor}").partition(":[")[0]] += 1
    return found
