"""Blocks in this host's shared memory: all processes of one user can map the files, and never see partial ones."""

from __future__ import annotations

import errno
import functools
import os
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path

import xxhash

from ..errors import StoreError, UsageError
from ..run_paths import CHILD, child_run, run_folder
from .atomic_files import Buffer, check_name, make_folders, remove_folder, write_file
from .file_views import LEAST, FileViews, read_file
from .kept_mappings import KeptMappings
from .page_pool import Spares
from .store_errors import border

SHARED_MEMORY = Path("/dev/shm")
FULL = (errno.ENOSPC, errno.EDQUOT, errno.ENOMEM)
"""The kernel's error numbers when shared memory is full."""
_SPARES = ".spares"
_views = FileViews(KeptMappings(kept_from=16 << 20))


class HostFolder:
    """A private folder (0700) of block files (0600), such as `/dev/shm/treadle-1000/<environment>`."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        """Create the folder if it is missing. Raises UsageError when another user owns it or its parent folder."""
        self.root = Path(root)
        self.url = f"file://{self.root}"
        for folder, forbidden in ((self.root.parent, 0o022), (self.root, 0o077)):
            with border(self.url):
                make_folders(folder)
            _refuse_others(folder, forbidden)  # before anything is created in it: it may be a link
        self.host_id = host_id(self.root)
        self.spares = Spares(self.root / _SPARES)

    def put(self, name: str, buffers: Iterable[Buffer]) -> None:
        """Write a block file; it appears whole. Raises a retryable StoreError when the block must go elsewhere."""
        try:
            with border(self.url, name):
                self._write(self.path(name), buffers)
        except StoreError as error:
            if isinstance(error.__cause__, OSError) and error.__cause__.errno in FULL:
                self.spares.drop()
                raise _full(self.root) from error.__cause__
            raise

    def _write(self, path: Path, buffers: Iterable[Buffer]) -> None:
        def reuse(temporary: Path, buffers: Iterable[Buffer]) -> bool:
            if not isinstance(buffers, Sequence) or (size := sum(map(len, buffers))) < LEAST:
                return False
            make_folders(temporary.parent)
            return self.spares.write(temporary, buffers, size)

        write_file(path, buffers, durable=False, reuse=reuse)

    def map(self, name: str) -> memoryview:
        """The bytes of a block file, read-only and not copied. Raises MissingError."""
        with border(self.url, name, reading=True):
            return _views.view(f"{self.root}/{check_name(name)}")

    def read(self, name: str, offset: int, length: int) -> bytes:
        """A copy of bytes of a block file, fewer where it ends; faster than `map` for a few. Raises MissingError."""
        with border(self.url, name, reading=True):
            return read_file(f"{self.root}/{check_name(name)}", offset, length)

    def path(self, name: str) -> Path:
        """Return the path of the block file."""
        return self.root / check_name(name)

    def delete_run(self, run: str) -> None:
        """Remove every block of a run and of its children; mappings of them stay readable."""
        self.delete_folder(run_folder(run))

    def runs(self) -> list[str]:
        """Ids of the runs that have blocks here, children after their parents."""
        return [run for top in self.folders() for run in self._with_children(top)]

    def _with_children(self, run: str) -> list[str]:
        stages = [name.removeprefix(CHILD) for name in self.folders(run_folder(run)) if name.startswith(CHILD)]
        return [run, *(below for stage in stages for below in self._with_children(child_run(run, stage)))]

    def delete_folder(self, name: str) -> None:
        """Remove every block below a name: a run, or a segment of a run. A missing folder is not an error."""
        with border(self.url, name):
            self.spares.keep(folder := self.path(name))
            remove_folder(folder)

    def delete(self, name: str) -> None:
        """Remove a block; mappings of it stay readable. A missing block is not an error."""
        with border(self.url, name):
            self.spares.keep_file(path := self.path(name))
            path.unlink(missing_ok=True)

    def folders(self, name: str = "") -> list[str]:
        """Return the names directly below a name that hold blocks; `""` lists the runs."""
        folder = self.path(name) if name else self.root
        with border(self.url, name):
            found = (entry.name for entry in os.scandir(folder) if entry.is_dir()) if folder.exists() else ()
            return sorted(name for name in found if name != _SPARES)


def _full(root: Path) -> StoreError:
    return StoreError(
        f"shared memory is full ({root})",
        "The block goes to the store instead; free some of it, or make /dev/shm larger, to be fast again.",
        retryable=True,
    )


def is_private(folder: Path) -> bool:
    """Return whether a `HostFolder` can be created there: the folder is missing, or no link and not another user's."""
    try:
        _refuse_others(folder, 0o022)
    except FileNotFoundError:
        return True
    except UsageError:
        return False
    return os.access(folder, os.W_OK | os.X_OK)


def _refuse_others(folder: Path, forbidden: int) -> None:
    """Refuse a folder that another user created or may write to: it could feed us blocks. Names stay private, too."""
    status = os.lstat(folder)
    sticky = forbidden == 0o022 and status.st_mode & stat.S_ISVTX
    if not stat.S_ISDIR(status.st_mode) or status.st_uid not in (os.geteuid(), 0):
        raise UsageError(f"{folder} is not a folder of yours", "Remove it, or name another folder for host blocks.")
    if status.st_mode & forbidden and not sticky:
        mode = stat.S_IMODE(status.st_mode)
        raise UsageError(f"{folder} is open to others (mode {mode:04o})", f"Use a new folder, or: chmod 700 {folder}")


def host_id(folder: str | os.PathLike[str] = SHARED_MEMORY) -> str:
    """Return an id that is equal for processes that see the same files in `folder` until reboot.

    It is made from boot, machine, memory and folder. The device number distinguishes containers of one host, each of
    which has its own shared memory. Two folders of one memory count as two hosts.
    """
    try:
        device = os.stat(folder).st_dev
    except FileNotFoundError:
        device = 0
    return xxhash.xxh3_64_hexdigest(f"{_machine()} {device} {os.path.realpath(folder)}".encode())


@functools.cache
def _machine() -> str:
    parts = [os.uname().nodename]
    for path in ("/proc/sys/kernel/random/boot_id", "/etc/machine-id"):
        try:
            parts.append(Path(path).read_text().strip())
        except OSError:
            continue
    return " ".join(parts)
