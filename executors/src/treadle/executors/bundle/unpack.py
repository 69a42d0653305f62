"""The worker's side of bundles: fetch, check, unpack once per user and host, and put first on the import path."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import gc
import importlib
import io
import os
import shutil
import stat
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

import msgspec

from treadle.primitives import sealing
from treadle.primitives.errors import CorruptError, UsageError
from treadle.primitives.functions import CAPTURED
from treadle.primitives.run_paths import run_folder
from treadle.primitives.stores.store import Store

from ..memory_limit import allocated_bytes
from ..program import SharedCode
from .build import CAPTURED_FOLDER, MANIFEST, MODULES, SIZE_LIMIT, BundleManifest, content_digest, python_version

UNUSED = 14 * 86_400.0
"""Seconds after which an unused unpacked bundle is removed."""
_NAMES = ".names"
"""Lists the entries of an unpacked bundle, to distinguish them from files added later."""
_MUCH = 256 << 20
"""A garbage collection is worthwhile once the process has allocated this many bytes since it opened its bundle."""
_active: dict[str, Path] = {}
"""Digest -> folder of the single bundle of this process."""


def prepare(store: Store, run: str, digest: str, key: bytes, shared: SharedCode | None = None) -> dict[str, bytes]:
    """Make the bundle of a run importable; return its captured functions by reference.

    Its modules are imported anew for each run. A bundle that is unpacked on this host is not fetched again, unless a
    file of it was removed. Raises UsageError when the process has another bundle, CorruptError when the bundle was not
    sealed with the run's key, MissingError, StoreError.
    """
    path = _active.get(digest)
    if path is None or not _is_there(path):
        root = path.parent if path is not None and path.parent.is_dir() else cache_root()
        path = root / digest
        if not _hold(path) or not _is_whole(path):
            path = open_bundle(_fetched(store, run, key, shared), digest, root)
            _hold(path)
    captured = activate(path)
    _modules.enter(run)
    return captured


def _fetched(store: Store, run: str, key: bytes, shared: SharedCode | None) -> bytes:
    if shared is not None:
        return bytes(sealing.pinned(shared.name, store.get(shared.name), shared.digest))
    return bytes(sealing.SealedStore(store, key).get(f"runs/{run_folder(run)}/bundle"))


def cache_root() -> Path:
    """A folder for unpacked bundles that only this user can write (0700)."""
    for base in _bases():
        root = base / f"treadle-{os.geteuid()}" / "bundles"
        try:
            root.mkdir(parents=True, mode=0o700, exist_ok=True)
            os.chmod(root.parent, 0o700)
        except OSError:
            continue
        if all(_is_private(folder) for folder in (root, root.parent)):
            return root
    raise UsageError("there is no folder for unpacked bundles", "Set TMPDIR to a folder this user may write.")


def _bases() -> list[Path]:
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return [Path(cache), Path(tempfile.gettempdir())]


def _is_private(folder: Path) -> bool:
    status = os.lstat(folder)
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o022


def open_bundle(data: bytes, digest: str, root: Path) -> Path:
    """Unpack a bundle into `root/<digest>`, atomically. An intact existing folder is kept.

    A damaged folder (after a power cut, or changed by user code) is replaced. Raises CorruptError when the content does
    not match the digest or would be written outside the folder.
    """
    target = root / digest
    if _is_whole(target):
        return target
    entries = _entries(data)
    if content_digest(entries) != digest:
        raise CorruptError(f"the bundle's content is not {digest[:12]}…", "Submit the workflow again.")
    _remove_unused(root)
    temporary = Path(tempfile.mkdtemp(prefix=".unpacking-", dir=root))
    try:
        new = temporary / "new"
        new.mkdir(mode=0o700)
        for name, content in entries.items():
            path = new / name
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            _write_private(path, content)
        _write_private(new / _NAMES, "\0".join(entries).encode())
        _move(new, target, temporary / "old")
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return target


def _write_private(path: Path, content: bytes) -> None:
    path.touch(mode=0o600)
    path.write_bytes(content)


def _move(new: Path, target: Path, aside: Path) -> None:
    """Rename into place. If two processes unpack at the same time, one wins and both use its folder."""
    try:
        os.rename(new, target)
    except OSError:
        if _is_whole(target):
            return
        os.rename(target, aside)
        os.rename(new, target)


def _is_whole(path: Path) -> bool:
    """Whether all unpacked files exist and are unchanged."""
    try:
        names = (path / _NAMES).read_text().split("\0")
        return content_digest({name: (path / _checked(name)).read_bytes() for name in names}) == path.name
    except (OSError, ValueError, CorruptError):
        return False


def _is_there(path: Path) -> bool:
    """Whether all unpacked files exist. Their content was checked when this process first used them."""
    try:
        names = (path / _NAMES).read_text().split("\0")
    except OSError:
        return False
    return all(os.path.exists(f"{path}/{name}") for name in names)


def _hold(path: Path) -> bool:
    """Protect the folder from removal while this process lives; False if it does not exist."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    with contextlib.suppress(OSError):  # a file system without locks: the folder's age alone protects it
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        os.utime(descriptor)
    return True


def _remove_unused(root: Path) -> None:
    """Remove old bundles, and leftovers of unpacking, that no process holds."""
    for entry in [one for one in os.scandir(root) if one.is_dir(follow_symlinks=False)]:
        with contextlib.suppress(OSError):
            if time.time() - entry.stat(follow_symlinks=False).st_mtime < UNUSED:
                continue
            descriptor = os.open(entry.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(entry.path, ignore_errors=True)
            finally:
                os.close(descriptor)


def _entries(data: bytes) -> dict[str, bytes]:
    """Name -> content. Rejects names outside the folder and content above the size limit of a bundle."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            infos = archive.infolist()
            if sum(info.file_size for info in infos) > SIZE_LIMIT:
                raise CorruptError("the bundle unpacks to more than a bundle may hold", "Submit the workflow again.")
            return {_checked(info.filename): archive.read(info) for info in infos}
    except zipfile.BadZipFile as error:
        raise CorruptError(f"the bundle is not a zip file: {error}", "Submit the workflow again.") from error


def _checked(name: str) -> str:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or "\0" in name or str(path) != name:
        raise CorruptError(f"the bundle has an entry {name!r} that would leave its folder", "Do not use this bundle.")
    return name


def activate(path: Path) -> dict[str, bytes]:
    """Put an unpacked bundle first on the import path; return its captured functions by reference.

    Raises UsageError when this process has another bundle, or when another Python version captured the functions.
    """
    if _active and path.name not in _active:
        raise UsageError("this process has the code of another bundle", "Start a new worker for each bundle.")
    manifest = msgspec.json.decode((path / MANIFEST).read_bytes(), type=BundleManifest)
    captured = {f"{CAPTURED}{file.name}": file.read_bytes() for file in (path / CAPTURED_FOLDER).glob("*")}
    if captured and manifest.python != python_version():
        raise UsageError(
            f"functions captured by Python {manifest.python} cannot run on Python {python_version()}",
            "Use the same minor version for both, or move the functions to a module.",
        )
    if _active.get(path.name) != path:
        _active[path.name] = path
        sys.path.insert(0, str(path / MODULES))
        _modules.own(manifest.modules)
    return captured


class _Modules:
    """The imported project modules of the current run. No run sees state that another run left in its modules."""

    def __init__(self) -> None:
        self._names: frozenset[str] = frozenset()
        self._run = ""
        self._imported: set[str] = set()
        self._allocated = 0

    def own(self, names: Iterable[str]) -> None:
        """Set the project's top-level names. Modules of these names that were imported from elsewhere are dropped."""
        self._names, self._run, self._allocated = frozenset(names), "", allocated_bytes()
        self._forget()
        importlib.invalidate_caches()

    def enter(self, run: str) -> None:
        """Drop the modules of another run, so that they are imported anew."""
        if self._run not in ("", run):
            self._imported.update(self._forget())
            if allocated_bytes() > self._allocated + _MUCH:
                gc.collect()  # modules are in reference cycles; their memory must not count against the next attempt
        self._run = run

    def imported_before(self, name: str) -> bool:
        """Whether an earlier run of this process imported the module."""
        return name in self._imported

    def _forget(self) -> list[str]:
        names = [name for name in sys.modules if name.partition(".")[0] in self._names]
        for name in names:
            del sys.modules[name]
        return names


_modules = _Modules()


def imported_before(module: str) -> bool:
    """Whether an earlier run imported this project module in this process."""
    return _modules.imported_before(module)


def missing_file_hint(error: BaseException) -> str:
    """The cause and the remedy if a function looked beside its module for a file that is not in the bundle. Otherwise
    empty."""
    if not isinstance(error, FileNotFoundError) or not isinstance(error.filename, str):
        return ""
    path = os.path.abspath(error.filename)
    folder = next((root / MODULES for root in _active.values() if path.startswith(f"{root / MODULES}/")), None)
    if folder is None:
        return ""
    return (
        f"{os.path.relpath(path, folder)} is not in the run's bundle, which has modules and all files of packages. Put "
        "the file and its module into a package (a folder with __init__.py), or pass the file as an input."
    )


def differences() -> str:
    """The differences between the versions of Python and packages here and at the creation of this process's bundle."""
    return "; ".join(map(_differences, _active.values()))


@functools.cache
def _differences(path: Path) -> str:
    from importlib import metadata

    manifest = msgspec.json.decode((path / MANIFEST).read_bytes(), type=BundleManifest)
    versions = {"Python": python_version()} | dict.fromkeys(manifest.distributions, "")
    for name in manifest.distributions:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    wanted = {"Python": manifest.python, **manifest.distributions}
    return ", ".join(
        f"{name} {version or 'is not installed'} (submitted with {wanted[name]})"
        for name, version in versions.items()
        if version != wanted[name]
    )
