"""The worker's side of bundles: fetched, checked, unpacked once per user and host, first on the path."""

from __future__ import annotations

import importlib
import io
import os
import shutil
import stat
import sys
import tempfile
import zipfile
from pathlib import Path, PurePosixPath

import msgspec

from treadle.primitives import trust
from treadle.primitives.errors import CorruptError, UsageError
from treadle.primitives.functions import CAPTURED
from treadle.primitives.run_names import run_folder
from treadle.primitives.store import Store

from .build import CAPTURED_FOLDER, MANIFEST, MODULES, SIZE_LIMIT, Manifest, content_digest, python_version

_active: dict[str, Path] = {}
"""Digest -> folder of the one bundle of this process."""


def prepare(store: Store, run: str, digest: str, key: bytes) -> dict[str, bytes]:
    """Make the bundle of a run importable; the functions captured in it, by reference.

    A bundle this process has, or this host has unpacked, is not fetched. Raises UsageError when the process has
    another one, CorruptError when it was not sealed with the run's key, MissingError, StoreError.
    """
    root = cache_root()
    path = _active.get(digest) or root / digest
    if not path.is_dir():
        name = f"runs/{run_folder(run)}/bundle"
        path = open_bundle(bytes(trust.unseal(key, name, store.get(name))), digest, root)
    return activate(path)


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
    """Unpack a bundle into `root/<digest>`, which appears whole or not at all; one that is there is left as it is.

    Raises CorruptError when the content is not what the digest says or would land outside of the folder.
    """
    target = root / digest
    if target.is_dir():
        return target
    entries = _entries(data)
    if content_digest(entries) != digest:
        raise CorruptError(f"the bundle's content is not {digest[:12]}…", "Submit the workflow again.")
    temporary = Path(tempfile.mkdtemp(prefix=".unpacking-", dir=root))
    try:
        for name, content in entries.items():
            path = temporary / name
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            path.write_bytes(content)
        _move(temporary, target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return target


def _move(temporary: Path, target: Path) -> None:
    """Rename into place; of two processes that unpack at once one wins, and both use its folder."""
    try:
        os.rename(temporary, target)
    except OSError:
        if not target.is_dir():
            raise


def _entries(data: bytes) -> dict[str, bytes]:
    """Name -> content; refuses names that leave the folder and content larger than a bundle may be."""
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
    """Put an unpacked bundle first on the path of imports; the captured functions in it, by reference.

    Raises UsageError when this process has another bundle, or when functions were captured by another Python.
    """
    if _active and path.name not in _active:
        raise UsageError("this process has the code of another bundle", "Start a new worker for each bundle.")
    manifest = msgspec.json.decode((path / MANIFEST).read_bytes(), type=Manifest)
    captured = {f"{CAPTURED}{file.name}": file.read_bytes() for file in _files(path / CAPTURED_FOLDER)}
    if captured and manifest.python != python_version():
        raise UsageError(
            f"functions captured by Python {manifest.python} cannot run on Python {python_version()}",
            "Use the same minor version for both, or move the functions to a module.",
        )
    if path.name not in _active:
        _active[path.name] = path
        _put_first(path / MODULES, manifest.modules)
    return captured


def _files(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _put_first(folder: Path, modules: tuple[str, ...]) -> None:
    """Modules of these names that were imported from elsewhere are forgotten."""
    sys.path.insert(0, str(folder))
    for name in [name for name in sys.modules if name.partition(".")[0] in modules]:
        del sys.modules[name]
    importlib.invalidate_caches()
