"""A small process that outlives a killed driver for a moment: it ends the process groups the driver left behind, and
removes their temporary folders.

The kernel kills a worker whose driver died, but not what user code started from it. This file is run by its path, in
an interpreter without site-packages, so it imports the standard library only.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys


class Guard:
    """The driver's handle of the process. It needs no reply, and ends with its pipe."""

    def __init__(self) -> None:
        import subprocess

        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def watch(self, group: int) -> None:
        self._tell(f"+{group}\n")

    def forget(self, group: int) -> None:
        self._tell(f"-{group}\n")

    def close(self) -> None:
        """End it; what it still watches is killed."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # somebody killed it: workers still have the kernel
            os.write(self._process.stdin.fileno(), line.encode())


def main() -> None:
    """Read groups until the driver is gone, then kill those that are left."""
    groups = set()
    for line in sys.stdin:
        group = int(line[1:])
        groups.add(group) if line[0] == "+" else groups.discard(group)
    for group in groups:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)
    for group in groups:
        remove_temporary(group)


def remove_temporary(pid: int, folder: str = "") -> None:
    """Remove the temporary folders of a process that has ended or is about to (see `Context.tmp`).

    `folder`: where they are; empty: where this process has its own.
    """
    import glob
    import shutil
    import tempfile

    for path in glob.glob(f"{glob.escape(folder or tempfile.gettempdir())}/treadle-{pid}-*"):
        with contextlib.suppress(OSError):
            if os.lstat(path).st_uid == os.geteuid():
                shutil.rmtree(path, ignore_errors=True)


if __name__ == "__main__":
    main()
