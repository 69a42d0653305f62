"""Input files: a URI or glob resolved once to a listing, and reads that refuse a file that changed since.

A local file is named by its absolute path, anything else by its URL (`s3://bucket/key`). A listing is sorted by the
UTF-8 bytes of the name. The version of a local file is its modification time, inode and size.
"""

from __future__ import annotations

import fnmatch
import glob
import mmap
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from msgspec import Struct

from ..errors import MissingError, UsageError
from .atomic_files import read_all
from .spool import fetch_range
from .store_errors import border

if TYPE_CHECKING:
    from .store import Store

OWN_FILES = ("_manifest.json", "_owner.json")
"""Names of files beside the parts of an output; no wildcard matches them, so that an output can be an input."""
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_MAGIC = re.compile(r"[*?[]")


class FileInfo(Struct, frozen=True):
    """One file of a listing."""

    uri: str
    """Absolute path of a local file, URL of any other."""
    size: int
    """Bytes."""
    version: str


def is_local(uri: str) -> bool:
    """Return whether `uri` names a file of this machine: a path or a `file://` URL."""
    return not _SCHEME.match(uri) or uri.startswith("file://")


def absolute_uri(uri: str, base: Path | None = None) -> str:
    """`uri` as a listing names it; relative paths count from `base` (default: the working directory).

    Raises UsageError for a name with a zero byte, which no file can have.
    """
    if "\0" in uri:
        raise UsageError(f"{uri!r} has a zero byte, which no file's name can have", "Remove it.")
    if not is_local(uri):
        return uri
    path = unquote(urlsplit(uri).path) if uri.startswith("file://") else os.path.expanduser(uri)
    return os.path.normpath(os.path.join(base or Path.cwd(), path))


def list_files(uri: str, base: Path | None = None) -> list[FileInfo]:
    """The files behind a URI or glob (`*`, `?`, `[...]`, `**`), in the order of their names' UTF-8 bytes.

    Raises UsageError when a named file does not exist or a glob matches nothing.
    """
    target = absolute_uri(uri, base)
    if not is_local(target):
        found = _list_remote(target)
    elif _MAGIC.search(target):
        names = (name for name in glob.glob(target, recursive=True) if not _is_own(name))
        found = [info for name in names if (info := _local_info(name)) is not None]
    else:
        found = [_named(target, uri)]
    if not found:
        raise UsageError(f"no file matches {uri!r}", _looked_for(target, uri))
    return sorted(found, key=lambda info: info.uri.encode())


def _named(path: str, uri: str) -> FileInfo:
    if os.path.isdir(path):
        raise UsageError(f"{uri!r} is a directory, not a file", f"Write {path}/* to read all files in it.")
    if (info := _local_info(path)) is not None:
        return info
    if os.path.exists(path):
        raise UsageError(f"{uri!r} is no regular file", "Copy what comes from it to a file, and name that one.")
    raise UsageError(f"no such file: {uri!r}", _looked_for(path, uri))


def _looked_for(path: str, uri: str) -> str:
    """The folder that was searched, for the error message: names count from the folder of the workflow, but a user may
    expect the working directory."""
    here = absolute_uri(uri)
    if here != path and glob.glob(here, recursive=True):
        return f"Looked for {path}: names count from the workflow's folder. For what is in this one write {here}."
    return f"Looked for {path}."


def _is_own(name: str) -> bool:
    return name.rpartition("/")[2] in OWN_FILES


def _local_info(path: str) -> FileInfo | None:
    """The file's listing entry; None: it is not a regular file, or disappeared since its name was read."""
    try:
        status = os.stat(path)
        path.encode()
    except OSError:
        return None
    except UnicodeEncodeError:
        raise UsageError(f"the name of {path!r} is not UTF-8", "Rename the file.") from None
    if not stat.S_ISREG(status.st_mode):
        return None
    return FileInfo(path, status.st_size, _local_version(status))


def _local_version(status: os.stat_result) -> str:
    return f"{status.st_mtime_ns:x}-{status.st_ino:x}-{status.st_size:x}"


# -- object stores -------------------------------------------------------------------------------------------------


@lru_cache(maxsize=64)
def _open_store(root: str) -> Store:
    from .store import Store

    return Store.open(root)


def remote(uri: str) -> tuple[Store, str]:
    """The store that holds the URL `uri` (its bucket or container) and the object's name in it."""
    scheme, _, rest = uri.partition("://")
    bucket, _, name = rest.partition("/")
    return _open_store(f"{scheme}://{bucket}"), name


def _list_remote(uri: str) -> list[FileInfo]:
    store, name = remote(uri)
    if not name or name.endswith("/"):
        raise UsageError(f"{uri!r} is a folder, not a file", f"Write {uri.rstrip('/')}/* to read all files in it.")
    root = uri[: len(uri) - len(name)]
    magic = _MAGIC.search(name)
    if not magic:
        head = store.head(name)
        return [FileInfo(uri, head.size, head.version)] if head else []
    folder, _, last = name.rpartition("/")
    above = name[: magic.start()].rpartition("/")[0]
    is_one = folder == above and last != "**"
    listed = store.list_folder(above) if is_one else store.list(above)
    found = (entry for entry in listed if glob_matches(name, entry.name))
    named = (entry for entry in found if not _is_own(entry.name))
    # A listing of everything below also has objects that only mark folders; their names are not standardised.
    entries = [entry for entry in named if is_one or entry.size or store.head(entry.name)]
    return [FileInfo(root + entry.name, entry.size, entry.version) for entry in entries]


def glob_matches(pattern: str, name: str) -> bool:
    """Return whether the glob matches; as in a shell, a wildcard at the start of a step matches no dot."""
    return _steps_match(pattern.split("/"), name.split("/"))


def _steps_match(pattern: list[str], name: list[str]) -> bool:
    if not pattern or not name:
        return not pattern and not name
    step, rest = pattern[0], pattern[1:]
    if step == "**":
        deeper = not name[0].startswith(".") and (_steps_match(pattern, name[1:]) or (not rest and len(name) == 1))
        return deeper or bool(rest and _steps_match(rest, name))
    hidden = name[0].startswith(".") and not step.startswith(".")
    return not hidden and fnmatch.fnmatchcase(name[0], step) and _steps_match(rest, name[1:])


# -- reading -------------------------------------------------------------------------------------------------------


def read_range(info: FileInfo, start: int, stop: int) -> bytes:
    """The bytes [start, stop) of a listed file, copied: a later change of the file cannot reach them.

    Raises MissingError when the file is gone, UsageError when its version differs from the listed one.
    """
    if not is_local(info.uri):
        return _read_remote(info, start, stop)
    with _opened(info) as descriptor:
        data = read_all(descriptor, start, stop - start)
        _check_version(info, _local_version(os.fstat(descriptor)))
        return data


def real_path(info: FileInfo) -> str:
    """Return the path of a listed local file with links followed: the very file that later reads open (open(2),
    O_PATH).

    A hard link does not count as a link here. Raises as `read_range` does.
    """
    with _opened(info, os.O_PATH) as descriptor:
        return os.readlink(f"/proc/self/fd/{descriptor}")


def map_file(info: FileInfo) -> memoryview:
    """Map a whole listed file read-only: a local file without a copy, a large remote file from a copy.

    Raises the errors of `read_range`, and StoreError when the disk for temporary files is full.
    """
    if info.size == 0 or not is_local(info.uri):
        return memoryview(fetch_range(lambda start, length: read_range(info, start, start + length), 0, info.size))
    with _opened(info) as descriptor:
        return memoryview(mmap.mmap(descriptor, info.size, access=mmap.ACCESS_READ))


@contextmanager
def _opened(info: FileInfo, how: int = os.O_RDONLY) -> Iterator[int]:
    """Open a listed local file and yield its descriptor. A disk error inside becomes a StoreError."""
    with border(info.uri):
        try:
            descriptor = os.open(info.uri, how | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            raise _gone(info) from None
        except PermissionError:
            raise UsageError(f"{info.uri} may not be read", "Give this user read permission.") from None
        try:
            _check_version(info, _local_version(os.fstat(descriptor)))
            yield descriptor
        finally:
            os.close(descriptor)


def _read_remote(info: FileInfo, start: int, stop: int) -> bytes:
    """Read a remote object. Objects are replaced as a whole, so that all bytes of an answer have one version."""
    store, name = remote(info.uri)
    try:
        data, found = store.get_part(name, start, stop - start) if stop > start else (b"", store.head(name))
    except MissingError:
        raise _gone(info) from None
    if found is None:
        raise _gone(info)
    _check_version(info, found.version)
    return data


def _gone(info: FileInfo) -> MissingError:
    return MissingError(f"{info.uri} is gone since the run started", "Put it back and resume, or start a new run.")


def _check_version(info: FileInfo, version: str) -> None:
    if info.version != version:
        raise UsageError(
            f"{info.uri} changed since the run started: listed as {info.version}, now {version}",
            "Restore the file and resume, or start a new run.",
        )
