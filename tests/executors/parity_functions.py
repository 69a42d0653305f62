"""User functions for sandboxes with limits."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from pathlib import Path


def fill(size: int) -> int:
    """Write this many bytes to the temporary folder, and take a while."""
    with tempfile.NamedTemporaryFile(delete=False) as file:
        file.write(b"x" * size)
    time.sleep(5)
    return size


def look(_: int) -> tuple[list[str], int]:
    """Returns the earlier content of the temporary folder and the sandbox's id. Leaves a file."""
    folder = Path(tempfile.gettempdir())
    found = sorted(os.listdir(folder))
    (folder / "left").touch()
    return found, os.getppid()


def settle(_: int) -> dict[str, object]:
    """Returns the process, its folder, and the earlier content of the folder. Leaves a file."""
    folder = os.getcwd()
    found = os.listdir(folder)
    Path("left").touch()
    return {"process": os.getpid(), "folder": folder, "before": found}


def scribble(_: int) -> None:
    """Write to all open descriptors, and end without an error."""
    for descriptor in range(3, 64):
        with contextlib.suppress(OSError):
            os.write(descriptor, b"nonsense")
    os._exit(0)
