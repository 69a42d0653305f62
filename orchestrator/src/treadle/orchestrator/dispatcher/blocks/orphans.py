"""Folders in shared memory whose home was removed, such as a temporary home. Only this sweep frees their memory.

Each home's folder in shared memory names its home, and the driver holds a lock on that file. A container may share
its host's memory but not its files: the lock distinguishes its home, invisible here, from a removed home.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import weakref
from pathlib import Path

from treadle.primitives.stores.shared_memory import HostFolder, is_private

MARK = ".home"


def claim(host: HostFolder, home: Path) -> None:
    """Write the home's path into the folder, and mark it in use for as long as `host` lives. Raises OSError."""
    descriptor = os.open(host.root / MARK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    weakref.finalize(host, os.close, descriptor)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    os.pwrite(descriptor, os.fsencode(home), 0)


def remove_strays_of_user(parent: Path) -> list[str]:
    """Remove the strays of `parent` and of the folders of single homes next to it (`Home.host_root`). Returns their
    names.

    Raises OSError.
    """
    removed = remove_strays(parent)
    single = re.compile(rf"treadle-{os.geteuid()}-[0-9a-f]{{16}}")
    for entry in os.scandir(parent.parent):
        if entry.path == str(parent) or not single.fullmatch(entry.name) or not is_private(Path(entry.path)):
            continue
        if found := remove_strays(Path(entry.path)):
            removed += found
            with contextlib.suppress(OSError):  # the folder is not empty
                os.rmdir(entry.path)
    return removed


def remove_strays(folder: Path) -> list[str]:
    """Remove each folder whose home does not exist and that no driver uses. Returns their names. Raises OSError."""
    return sorted(entry.name for entry in os.scandir(folder) if _is_stray(Path(entry.path)) and _removed(entry.path))


def _is_stray(folder: Path) -> bool:
    with contextlib.suppress(OSError), open(folder / MARK, "rb") as mark:
        home = mark.read()
        fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return bool(home) and not os.path.lexists(home)
    return False


def _removed(folder: str) -> bool:
    shutil.rmtree(folder, ignore_errors=True)
    return not os.path.exists(folder)
