"""Object stores behind one small synchronous interface: `file://`, `s3://`, `gs://`, `az://` and `memory://`.

Objects are immutable by convention: `create` is the only way two writers may meet. Every method is safe to call from
several threads, and raises MissingError or StoreError, never a foreign error.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import quote, unquote, urlsplit

from msgspec import Struct

from ..errors import UsageError
from .atomic_files import Buffer, check_name, create_file, is_temporary, read_range, remove_folder, write_file
from .files_ahead import FilesAhead
from .multipart import create_in_parts
from .request_counts import PAGE, Sent, count, pages
from .store_errors import border

_SCHEMES = "file://, s3://, gs://, az:// or memory://"
_CHUNK = 8 << 20
_COPY_REQUESTS = 3
"""Headers for a copy to a free name: an upload is started, filled by a copy, and completed."""
Data: TypeAlias = Buffer | Sequence[Buffer]
Stream: TypeAlias = Data | Iterator[Buffer]
"""An iterator's buffers are sent as they come, and not kept."""


class ObjectInfo(Struct, frozen=True):
    """An object's entry in a listing."""

    name: str
    """Relative to the store's URL."""
    size: int
    version: str
    """ETag, or modification time and size: differs when the content was replaced."""
    modified: float = 0.0
    """Time of the write according to the store: seconds since the epoch."""


class Store(ABC):
    """A flat set of named objects below `url`; names are relative paths such as `runs/r1/plan`."""

    url: str

    @staticmethod
    def open(url: str, **options: Any) -> Store:
        """Return the store at `url`, without contacting it.

        Options and the environment (`AWS_ENDPOINT_URL`, `AWS_ACCESS_KEY_ID`, ...) are as in obstore; for S3 the
        profiles of the AWS tools come after them. Plain HTTP is allowed for endpoints on loopback and where
        `AWS_ALLOW_HTTP` is true. Raises UsageError for an invalid URL, option or profile.
        """
        parts = urlsplit(url)
        if parts.query or parts.fragment:
            raise UsageError(
                f"store URL {url!r} has a query or a fragment", f"Write {parts.scheme}://place/folder only."
            )
        if parts.scheme in ("file", "memory") and options:
            raise UsageError(f"a {parts.scheme}:// store has no options; got {', '.join(options)}", "Leave them out.")
        if parts.scheme == "file":
            return FileStore(_folder(url))
        if parts.scheme == "memory":
            return ObjectStore(url.rstrip("/") if parts.netloc else "memory://", _memory(url))
        if parts.scheme in ("s3", "gs", "az") and parts.netloc:
            return ObjectStore(url.rstrip("/"), _remote(url.rstrip("/"), parts.scheme, options))
        raise UsageError(f"{url!r} is not a store URL", f"Begin with {_SCHEMES}.")

    @abstractmethod
    def put(self, name: str, data: Stream) -> None:
        """Write the object, replacing an existing one; readers see the old or the new one, never a mixture."""

    @abstractmethod
    def create(self, name: str, data: Stream) -> bool:
        """Write the object unless it exists; False if it exists. Durable on return.

        After a broken connection to an object store, the result may be False because of the caller's own earlier write.
        A caller that must distinguish the two puts a nonce into the data and reads it back.
        """

    @abstractmethod
    def get(self, name: str) -> bytes:
        """All bytes of the object."""

    @abstractmethod
    def get_range(self, name: str, start: int, length: int) -> bytes:
        """At most `length` bytes from `start`: fewer, or none, where the object ends."""

    def get_part(self, name: str, start: int, length: int) -> tuple[bytes, ObjectInfo | None]:
        """As `get_range`, with size and version of the object that has these bytes; None if it was removed since."""
        return self.get_range(name, start, length), self.head(name)

    @abstractmethod
    def head(self, name: str) -> ObjectInfo | None:
        """Return size and version, or None if the object does not exist."""

    @abstractmethod
    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Every object below the folder `prefix` (all of them: ""), sorted by the UTF-8 bytes of the name."""

    def list_folder(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """List objects like `list`, but without objects in subfolders."""
        start = len(prefix.rstrip("/") + "/") if prefix else 0
        return (info for info in self.list(prefix) if "/" not in info.name[start:])

    @abstractmethod
    def delete(self, names: Iterable[str]) -> None:
        """Remove the objects; missing objects are not an error."""

    @abstractmethod
    def delete_prefix(self, prefix: str) -> None:
        """Remove every object below the folder `prefix`."""

    def prepare(self, name: str) -> None:  # noqa: B027
        """Prepare for a `create` in the folder of `name`, which then takes less time."""

    def path(self, name: str) -> Path | None:  # noqa: ARG002
        """Return the path of the object if it is a file of this host; None on other stores."""
        return None


class FileStore(Store):
    """Objects as files (0600, in folders 0700) that are whole, and durable before `put` or `create` returns."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.url = f"file://{quote(str(root))}"
        self._ahead = FilesAhead()

    def path(self, name: str) -> Path:
        return self.root / check_name(name)

    def put(self, name: str, data: Stream) -> None:
        count("put", name)
        with border(self.url, name, writing=True):
            write_file(self.path(name), data if isinstance(data, Iterator) else _buffers(data), durable=True)

    def create(self, name: str, data: Stream) -> bool:
        count("put", name)
        with border(self.url, name, writing=True):
            buffers = data if isinstance(data, Iterator) else _buffers(data)
            return create_file(self.path(name), buffers, reuse=self._ahead.fill)

    def prepare(self, name: str) -> None:
        self._ahead.make(self.path(name).parent)

    def get(self, name: str) -> bytes:
        count("get", name)
        with border(self.url, name, reading=True):
            return self.path(name).read_bytes()

    def get_range(self, name: str, start: int, length: int) -> bytes:
        count("get", name)
        with border(self.url, name, reading=True):
            return read_range(self.path(name), start, length)

    def head(self, name: str) -> ObjectInfo | None:
        count("head", name)
        with border(self.url, name):
            try:
                status = self.path(name).stat()
            except OSError as error:
                if error.errno in (errno.ENOENT, errno.ENOTDIR):
                    return None
                raise
            return _info(name, status) if stat.S_ISREG(status.st_mode) else None

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        prefix = _folder_name(prefix)
        count("list", prefix)
        with border(self.url, prefix):
            found = list(self._walk(prefix))
        return iter(sorted(found, key=_by_name))

    def _walk(self, prefix: str) -> Iterator[ObjectInfo]:
        try:
            entries = os.scandir(self.root / prefix)
        except (FileNotFoundError, NotADirectoryError):
            return
        with entries:
            for entry in entries:
                name = f"{prefix}/{entry.name}" if prefix else entry.name
                try:
                    if entry.is_dir():
                        yield from self._walk(name)
                    elif entry.is_file() and not is_temporary(entry.name):
                        yield _info(name, entry.stat())
                except FileNotFoundError:
                    continue  # deleted while we looked

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            count("delete", name)
            with border(self.url, name), suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError):
                self.path(name).unlink()

    def delete_prefix(self, prefix: str) -> None:
        with border(self.url, prefix):
            remove_folder(self.path(prefix.rstrip("/")))


class ObjectStore(Store):
    """Objects behind obstore."""

    def __init__(self, url: str, inner: Any) -> None:
        import obstore

        self.url = url
        self._inner = inner
        self._obstore = obstore

    def put(self, name: str, data: Stream) -> None:
        sent = Sent(data if isinstance(data, Iterator) else _in_chunks(data))
        with border(self.url, name):
            self._obstore.put(self._inner, check_name(name), sent.data, chunk_size=_CHUNK, max_concurrency=4)
        count("put", name, sent.requests(_CHUNK))

    def create(self, name: str, data: Stream) -> bool:
        if isinstance(data, Iterator):
            return create_in_parts(self, check_name(name), data)
        put, whole = self._obstore.put, _joined(data)
        return self._made(name, lambda at: put(self._inner, at, whole, mode="create", use_multipart=False))

    def copy(self, source: str, name: str) -> bool:
        """Copy `source` to `name` within the store unless `name` exists; False: it exists."""
        copy, place = self._obstore.copy, check_name(source)
        count("put", name, _COPY_REQUESTS - 1)
        return self._made(name, lambda at: copy(self._inner, place, at, overwrite=False))

    def _made(self, name: str, make: Callable[[str], object]) -> bool:
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        count("put", name)
        with border(self.url, name):
            try:
                make(check_name(name))
            except (AlreadyExistsError, PreconditionError):
                return False
            return True

    def get(self, name: str) -> bytes:
        count("get", name)
        with border(self.url, name):
            return self._obstore.get(self._inner, check_name(name)).bytes().to_bytes()

    def get_range(self, name: str, start: int, length: int) -> bytes:
        return self.get_part(name, start, length)[0]

    def get_part(self, name: str, start: int, length: int) -> tuple[bytes, ObjectInfo | None]:
        count("get", name)
        with border(self.url, name):
            try:
                found = self._obstore.get(self._inner, check_name(name), options={"range": (start, start + length)})
                return found.bytes().to_bytes(), _object_info(found.meta)
            except Exception as error:
                if not re.search("[Rr]ange|416", str(error)):
                    raise
                info = self.head(name)  # stores refuse ranges that begin at or after the end, each in its own words
                if info is not None and (length == 0 or start >= info.size):
                    return b"", info
                raise

    def head(self, name: str) -> ObjectInfo | None:
        count("head", name)
        with border(self.url, name):
            try:
                return _object_info(self._obstore.head(self._inner, check_name(name)))
            except FileNotFoundError:
                return None

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        prefix = _folder_name(prefix)
        with border(self.url, prefix):
            metas = self._obstore.list(self._inner, f"{prefix}/" if prefix else None).collect()
        count("list", prefix, pages(len(metas)))
        return iter(sorted(map(_object_info, metas), key=_by_name))

    def list_folder(self, prefix: str = "") -> Iterator[ObjectInfo]:
        prefix = _folder_name(prefix)
        with border(self.url, prefix):
            found = self._obstore.list_with_delimiter(self._inner, f"{prefix}/" if prefix else None)
        count("list", prefix, pages(len(found["objects"]) + len(found["common_prefixes"])))
        return iter(sorted(map(_object_info, found["objects"]), key=_by_name))

    def delete(self, names: Iterable[str]) -> None:
        rest = map(check_name, names)
        while some := list(islice(rest, PAGE)):
            alone = some[0] if len(some) == 1 else ""
            count("delete", some[0])
            with border(self.url, alone):
                try:
                    self._obstore.delete(self._inner, alone or some)
                except FileNotFoundError:  # some stores report this error, and may have stopped there
                    for name in some:
                        with suppress(FileNotFoundError):
                            self._obstore.delete(self._inner, name)

    def delete_prefix(self, prefix: str) -> None:
        self.delete(info.name for info in self.list(check_name(prefix.rstrip("/"))))


_memories: dict[str, Any] = {}
_memories_lock = threading.Lock()


def _memory(url: str) -> Any:
    """Return the one store of this process for the URL."""
    from obstore.store import MemoryStore

    with _memories_lock:
        return _memories.setdefault(url.rstrip("/"), MemoryStore())


def _remote(url: str, scheme: str, options: dict[str, Any]) -> Any:
    from obstore.exceptions import BaseError
    from obstore.store import from_url

    http: dict[str, Any] = {"timeout": timedelta(seconds=120), "connect_timeout": timedelta(seconds=5)}
    retry = {"max_retries": 4, "retry_timeout": timedelta(seconds=60)}
    given: dict[str, Any] = {"client_options": http, "retry_config": retry}
    if scheme == "s3":
        from .aws_config import plain_http, s3_settings

        options, credentials = s3_settings(options)
        http |= plain_http(options.get("endpoint", ""))
        given |= {"credential_provider": credentials} if credentials else {}
    given["config"] = {**options}
    try:
        return from_url(url, **given)
    except BaseError as error:
        raise UsageError(
            f"store {url} cannot be opened: {str(error).partition(chr(10))[0]}", "Correct the URL or the options."
        ) from error


def _folder(url: str) -> Path:
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
        raise UsageError(f"{url!r} does not name an absolute folder", "Write three slashes: file:///folder.")
    return Path(unquote(parts.path))


def _folder_name(prefix: str) -> str:
    prefix = prefix.rstrip("/")
    return check_name(prefix) if prefix else ""


def _buffers(data: Data) -> Sequence[Buffer]:
    return [data] if isinstance(data, bytes | bytearray | memoryview) else data


def _joined(data: Data) -> bytes:
    return data if isinstance(data, bytes) else b"".join(_buffers(data))


def _in_chunks(data: Data) -> bytes | Iterator[Buffer]:
    """Return a small object as one chunk, a large one in chunks: it would be in memory twice."""
    views = [memoryview(one).cast("B") for one in _buffers(data)]
    if sum(map(len, views)) <= _CHUNK:
        return _joined(data)
    return (view[start : start + _CHUNK] for view in views for start in range(0, len(view), _CHUNK))


def _info(name: str, status: os.stat_result) -> ObjectInfo:
    return ObjectInfo(name, status.st_size, f"{status.st_mtime_ns:x}-{status.st_size:x}", status.st_mtime)


def _object_info(meta: Any) -> ObjectInfo:
    modified = meta["last_modified"]
    return ObjectInfo(meta["path"], meta["size"], meta["e_tag"] or modified.isoformat(), modified.timestamp())


def _by_name(info: ObjectInfo) -> bytes:
    return info.name.encode("utf-8", "surrogateescape")
