"""`open` and `os` for programs whose files are objects of a store.

Paths of `s3://`, `gs://`, `az://` and `memory://` name objects; all other calls go to Python's own functions. A file is
read in ranges, written to a temporary file, and uploaded when it is closed. A folder is there while an object is in it.
After the cloud proxy of Lithops' multiprocessing.
"""

from __future__ import annotations

import builtins
import errno
import functools
import io
import os as _real
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ..errors import MissingError, StoreError
from .store import Store

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

__all__ = ["open", "os"]
_SCHEMES = ("s3://", "gs://", "az://", "memory://")
_MODES = {"r", "w", "x"}
_READ_AHEAD, _UPLOADED = 4 << 20, 8 << 20
"""Bytes of a range, and of a part of an upload."""
_open = functools.cache(Store.open)


def open(
    file: Any,
    mode: str = "r",
    buffering: int = -1,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    **settings: Any,
) -> IO[Any]:
    """As `builtins.open`; an object can be read (`r`), written (`w`), or made (`x`).

    Raises FileNotFoundError, FileExistsError, ValueError for other modes, and OSError when the store does not answer.
    """
    if not _is_object(file):
        return builtins.open(file, mode, buffering, encoding, errors, newline, **settings)
    kind = mode.replace("b", "").replace("t", "")
    if kind not in _MODES or ("b" in mode and "t" in mode):
        raise ValueError(f"mode {mode!r} is not for objects of a store: use r, w or x, with b or t")
    raw = _Reader(file) if kind == "r" else _writer(file, is_new=kind == "x")
    binary = io.BufferedReader(raw, _READ_AHEAD) if isinstance(raw, _Reader) else io.BufferedWriter(raw)
    return binary if "b" in mode else io.TextIOWrapper(binary, encoding or "utf-8", errors, newline)


class _Reader(io.RawIOBase):
    """An object, read in ranges. All ranges are of one version."""

    def __init__(self, path: str) -> None:
        self._path, self._at, self._info = path, 0, _known(path)
        self._store, self._name = _place(path)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = max(0, offset + (0, self._at, self._info.size)[whence])
        return self._at

    def readinto(self, buffer: WriteableBuffer) -> int:
        room = memoryview(buffer).cast("B")
        wanted = min(len(room), self._info.size - self._at)
        if wanted <= 0:
            return 0
        with _as_os_error(self._path):
            data, info = self._store.get_part(self._name, self._at, wanted)
        if info is None or info.version != self._info.version:
            raise OSError(errno.ESTALE, "the object was replaced while it was read", self._path)
        room[: len(data)] = data
        self._at += len(data)
        return len(data)


def _writer(path: str, *, is_new: bool) -> _Writer:
    place = _place(path)
    if is_new and os.path.isfile(path):
        raise _exists(path)
    return _Writer(path, place, tempfile.TemporaryFile(prefix="treadle-"), is_new=is_new)


class _Writer(io.RawIOBase):
    """An object to be: a temporary file until it is closed. Python closes it even if its making has raised an error."""

    def __init__(self, path: str, place: tuple[Store, str], file: IO[bytes], *, is_new: bool) -> None:
        self._path, self._is_new = path, is_new
        self._store, self._name = place
        self._file = file

    def writable(self) -> bool:
        return True

    def write(self, data: ReadableBuffer) -> int:
        return self._file.write(data)

    def close(self) -> None:
        if self.closed:
            return
        try:
            self._file.seek(0)
            pieces = iter(functools.partial(self._file.read, _UPLOADED), b"")
            with _as_os_error(self._path):
                if not self._is_new:
                    self._store.put(self._name, pieces)
                elif not self._store.create(self._name, pieces):
                    raise _exists(self._path)
        finally:
            self._file.close()
            super().close()


class _Os:
    """The module `os`, with these functions for objects too."""

    def __getattr__(self, name: str) -> Any:
        return getattr(_real, name)

    @functools.cached_property
    def path(self) -> Any:
        return _Path()

    def listdir(self, path: Any = ".") -> list[str]:
        if not _is_object(path):
            return _real.listdir(path)
        _, folders, files = next(self.walk(path), (path, [], []))
        return folders + files

    def walk(self, top: Any, *rest: Any, **settings: Any) -> Iterator[tuple[Any, list[Any], list[Any]]]:
        """As `os.walk`, from the top: the caller may remove folders from the list."""
        if not _is_object(top):
            yield from _real.walk(top, *rest, **settings)
            return
        yield from _walk(top.rstrip("/"), sorted(_below(top)))

    def remove(self, path: Any, **settings: Any) -> None:
        if not _is_object(path):
            _real.remove(path, **settings)
            return
        _known(path)
        store, name = _place(path)
        with _as_os_error(path):
            store.delete([name])

    unlink = remove

    def mkdir(self, path: Any, *rest: Any, **settings: Any) -> None:
        """An object needs no folder."""
        if not _is_object(path):
            _real.mkdir(path, *rest, **settings)

    def makedirs(self, name: Any, *rest: Any, **settings: Any) -> None:
        """An object needs no folder."""
        if not _is_object(name):
            _real.makedirs(name, *rest, **settings)


class _Path:
    """The module `os.path`, with these functions for objects too."""

    def __getattr__(self, name: str) -> Any:
        return getattr(_real.path, name)

    def exists(self, path: Any) -> bool:
        return self.isfile(path) or self.isdir(path) if _is_object(path) else _real.path.exists(path)

    def isfile(self, path: Any) -> bool:
        return _head(path) is not None if _is_object(path) else _real.path.isfile(path)

    def isdir(self, path: Any) -> bool:
        return bool(_below(path)) if _is_object(path) else _real.path.isdir(path)

    def getsize(self, path: Any) -> int:
        return _known(path).size if _is_object(path) else _real.path.getsize(path)

    def getmtime(self, path: Any) -> float:
        return _known(path).modified if _is_object(path) else _real.path.getmtime(path)


os = _Os()


def _is_object(path: Any) -> bool:
    return isinstance(path, str) and path.startswith(_SCHEMES)


def _place(path: str) -> tuple[Store, str]:
    """The store of an object, and its name there."""
    parts = urlsplit(path)
    return _open(f"{parts.scheme}://{parts.netloc}"), path.partition("://")[2].partition("/")[2].strip("/")


def _below(path: str) -> list[str]:
    """The names of the objects below a folder, from there."""
    store, name = _place(path)
    with _as_os_error(path):
        return [info.name[len(name) + 1 if name else 0 :] for info in store.list(name)]


def _walk(top: str, names: list[str]) -> Iterator[tuple[str, list[str], list[str]]]:
    inner: dict[str, list[str]] = {}
    for name in names:
        folder, slash, rest = name.partition("/")
        if slash:
            inner.setdefault(folder, []).append(rest)
    folders = list(inner)
    yield top, folders, [name for name in names if "/" not in name]
    for folder in folders:
        yield from _walk(f"{top}/{folder}", inner[folder])


def _head(path: str) -> Any:
    store, name = _place(path)
    with _as_os_error(path):
        return store.head(name) if name else None


def _known(path: str) -> Any:
    info = _head(path)
    if info is None:
        raise _missing(path)
    return info


def _missing(path: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, "the store has no such object", path)


def _exists(path: str) -> FileExistsError:
    return FileExistsError(errno.EEXIST, "the store has this object", path)


@contextmanager
def _as_os_error(path: str) -> Iterator[None]:
    """Programs expect errors of the operating system."""
    try:
        yield
    except MissingError as error:
        raise _missing(path) from error
    except StoreError as error:
        raise OSError(errno.EIO, error.message, path) from error
