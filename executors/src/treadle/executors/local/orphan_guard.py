"""A small process that cleans up after a killed driver: it kills the remaining process groups and removes their
folders.

The kernel kills a worker whose driver died, but not the processes that user code started. This file is run by its path,
in an interpreter without site-packages, so it imports the standard library only.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time

TYPE_CHECKING = False  # type checkers treat it like the one in `typing`, which is too slow to import here
if TYPE_CHECKING:
    import subprocess

_TRIES, _PAUSE = 50, 0.02
"""Number of tries to remove a folder whose dying processes may still write to it, and seconds between the tries."""


class Guard:
    """The driver's handle of the guard process, which starts with the first watched group. It ends when its pipe
    closes."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the guard process if necessary. Raises OSError."""
        import subprocess

        self._process = self._process or subprocess.Popen(
            [sys.executable, "-I", "-S", __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def watch(self, group: int, folder: str = "", temporary: str = "") -> None:
        """Watch a process group. `folder` is removed with the group, and so are its temporary folders in `temporary`
        (empty: the temporary folder of this process). Raises OSError when the guard cannot start."""
        self.start()
        self._tell(f"+{group} {os.fsencode(folder).hex()} {os.fsencode(temporary).hex()}\n")

    def forget(self, group: int) -> None:
        self._tell(f"-{group}\n")

    def close(self) -> None:
        """End the guard; groups that it still watches are killed. It may be used again."""
        process, self._process = self._process, None
        if process is not None:
            process.communicate()

    def _tell(self, line: str) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # the guard was killed; the kernel still ends the workers
            os.write(self._process.stdin.fileno(), line.encode())


def main() -> None:
    """Read groups until the driver is gone, then kill the remaining ones."""
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
    """Remove the temporary folders of a process that has ended or is about to end (see `Context.tmp`).

    `folder`: their location; empty: the temporary folder of this process.
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
