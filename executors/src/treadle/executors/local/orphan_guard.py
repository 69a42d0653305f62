"""A small process that outlives a killed driver for a moment: it ends the process groups the driver left behind, and
removes their folders.

The kernel kills a worker whose driver died, but not what user code started from it. This file is run by its path, in
an interpreter without site-packages, so it imports the standard library only.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time

TYPE_CHECKING = False  # checkers take it for the one of `typing`, which is not worth loading here
if TYPE_CHECKING:
    import subprocess

_TRIES, _PAUSE = 50, 0.02
"""To remove a folder whose processes are being killed, and may still write; seconds between."""


class Guard:
    """The driver's handle of the process, started with the first that it is to watch. It ends with its pipe."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Be ready to watch. Raises OSError."""
        import subprocess

        self._process = self._process or subprocess.Popen(
            [sys.executable, "-I", "-S", __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def watch(self, group: int, folder: str = "", temporary: str = "") -> None:
        """`folder`: what goes with the group, besides its temporary folders. Those are in `temporary`, or, when that is
        empty, where this process has its own. Raises OSError when it cannot start."""
        self.start()
        self._tell(f"+{group} {os.fsencode(folder).hex()} {os.fsencode(temporary).hex()}\n")

    def forget(self, group: int) -> None:
        self._tell(f"-{group}\n")

    def close(self) -> None:
        """End it; what it still watches is killed. It may be used again."""
        process, self._process = self._process, None
        if process is not None:
            process.communicate()

    def _tell(self, line: str) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # somebody killed it: workers still have the kernel
            os.write(self._process.stdin.fileno(), line.encode())


def main() -> None:
    """Read groups until the driver is gone, then kill those that are left."""
    groups: dict[int, tuple[str, str]] = {}
    for line in sys.stdin:
        group, *folders = line[1:].rstrip("\n").split(" ")
        if line[0] == "+":
            folder, temporary = (os.fsdecode(bytes.fromhex(one)) for one in folders)
            groups[int(group)] = folder, temporary
        else:
            groups.pop(int(group), None)
    for left in groups:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(left, signal.SIGKILL)
    for left, (folder, temporary) in groups.items():
        remove_temporary(left, temporary)
        if folder:
            _remove(folder)


def _remove(folder: str) -> None:
    import shutil

    for _ in range(_TRIES):
        shutil.rmtree(folder, ignore_errors=True)
        if not os.path.exists(folder):
            return
        time.sleep(_PAUSE)


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
