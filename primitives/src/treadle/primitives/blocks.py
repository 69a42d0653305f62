"""Blocks: encoded parts put once where a consumer can reach them, and checked before they are decoded."""

from __future__ import annotations

import itertools
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from mmap import mmap
from typing import Any, Literal, Protocol, TypeVar

from .checksums import is_sound, part_digest, sha256, xxh3
from .encoding.codec import LARGE, decode, encode, in_pieces, pieces, rows
from .encoding.encoded_parts import BlockIndex, EncodedPart
from .encoding.references import BlockRef, Kind, Part, Slice
from .errors import CorruptError, MissingError, StoreError, TreadleError
from .run_paths import run_folder
from .stores.atomic_files import Buffer, check_name, map_file, read_range
from .stores.ranges_ahead import ObjectRange, RangesAhead
from .stores.shared_memory import HostFolder
from .stores.spool import AT_ONCE, SPOOLED_FROM, fetch_range
from .stores.store import Store
from .stores.store_errors import border

_MAPPED_FROM = 64 << 10
"""Bytes from which a part is mapped; shorter ones are read, which is faster than setting a mapping up."""
_REMEMBERED = 100_000
_ASKED = 64
"""Number of hosts to ask at the same time."""
Place = Literal["host", "store", "both"]
"""Where blocks are put: in shared memory, in the store, or in both. A block on a host alone is lost with the host,
unless the caller copies it with `copy_to_store`.
"""


class Peers(Protocol):
    """Fetches parts of blocks from the shared memory of other hosts."""

    def expect(self, host: str, slices: Iterable[Slice]) -> None:
        """Announce the next parts to be fetched from a host, so that small parts travel together."""

    def forget(self) -> None:
        """Forget which parts were announced."""

    def fetch(self, host: str, name: str, offset: int, length: int, *, shared: bool, elsewhere: bool) -> Buffer:
        """Return bytes of a block.

        `shared`: other processes of this host will want these bytes too. `elsewhere`: the store holds the block as
        well. Raises MissingError when that host no longer has the bytes or cannot be reached.
        """

    def gone(self, host: str, names: Sequence[str]) -> set[str]:
        """Return the blocks that the host does not have; all of them when it cannot be reached."""

    def close(self) -> None:
        """Close connections that are not in use."""


T = TypeVar("T")


class Blocks:
    """The blocks of one run: `runs/<run>/blocks/<name>` in the store, `<run>/<name>` on a host. Thread-safe."""

    def __init__(
        self, store: Store, run: str, host: HostFolder | None = None, peers: Callable[[], Peers] | None = None
    ) -> None:
        """`peers` is called when a block of another host is first wanted; None: such blocks are out of reach. Peers
        count the bytes that they fetch in `read`.
        """
        self._store = store
        self.run, self._folder = run, run_folder(run)
        self.host = host
        self._open_peers = peers
        self.read: Counter[str] = Counter()
        """Bytes read so far from each kind of place (inline, host, store); peers add their own counts."""
        self._in_store = str(store.path(f"runs/{self._folder}/blocks") or "")
        self._ahead = RangesAhead(store.get_range)
        self._checked: set[tuple[str, str, int]] = set()
        self._nonce, self._numbers = os.urandom(6).hex(), itertools.count()

    def put(
        self,
        name: str,
        kind: Kind,
        parts: Sequence[Any],
        place: Place,
        inline_limit: int = 0,
        write: Callable[[str, Sequence[Buffer]], None] | None = None,
        checksums: bool = True,
    ) -> BlockRef:
        """Encode the parts as one block and put it. `name` is `<segment>/<partition>.<attempt>`; a nonce is added.
        `checksums`: False: none for a block on the host alone.

        A block of at most `inline_limit` bytes stays in its reference. A block for the host goes to the store if the
        host folder is missing or shared memory is full. `write` puts the block on the host, as `HostFolder.put` does.
        Raises DataError (see `encode`) and StoreError.
        """
        name = self._unique(name)
        encoded = [encode(kind, part) for part in parts]
        counts = [rows(kind, part) for part in parts]
        buffers = encoded[0] if len(encoded) == 1 else list(itertools.chain.from_iterable(encoded))
        size = sum(map(len, buffers))
        if size > LARGE and kind == "objects":
            encoded = [in_pieces(part, one) for part, one in zip(parts, encoded, strict=True)]
            buffers = list(itertools.chain.from_iterable(encoded))
            size = sum(map(len, buffers))
        if size <= inline_limit:
            index = _index(encoded, counts, digests=False)
            return BlockRef(name, kind, size, index, ("inline",), b"".join(buffers))
        on_host = self._put_host(name, lambda host, at: (write or host.put)(at, buffers)) if place != "store" else ""
        if on_host and place == "host":
            index = _index(encoded, counts, digests=False, checksums=checksums)
            return BlockRef(name, kind, size, index, (on_host,))
        self._store.put(_object(self._folder, name), buffers)
        return BlockRef(
            name, kind, size, _index(encoded, counts, digests=True), (on_host, "store") if on_host else ("store",)
        )

    def put_encoded(self, name: str, kind: Kind, parts: Sequence[EncodedPart], place: Place) -> BlockRef:
        """Put parts that are already encoded, a piece at a time; otherwise like `put`, but never inline."""
        name = self._unique(name)
        index = BlockIndex(digests=False)
        on_host = self._put_host(name, lambda host, at: host.put(at, index.of(parts))) if place != "store" else ""
        if on_host and place == "host":
            return BlockRef(name, kind, index.size, tuple(index.parts), (on_host,))
        index = BlockIndex(digests=True)
        self._store.put(_object(self._folder, name), index.of(parts))
        return BlockRef(name, kind, index.size, tuple(index.parts), (on_host, "store") if on_host else ("store",))

    def _unique(self, name: str) -> str:
        return f"{name}.{self._nonce}{next(self._numbers):x}"

    def expect(self, slices: Iterable[Slice]) -> None:
        """Announce parts that will be read after the ones announced before, in order, so that several parts of another
        host, or of the store, are fetched at the same time."""
        far: dict[str, list[Slice]] = {}
        stored: list[ObjectRange] = []
        for one in slices:
            place, _, where = next(self._locations(one), "").partition(":")
            if place == "host" and where:
                far.setdefault(where, []).append(one)
            elif place == "store" and one.part.length < AT_ONCE and not self._folder_of(where or self._folder):
                stored.append(ObjectRange(_object(where or self._folder, one.name), one.part.offset, one.part.length))
        self._ahead.expect(stored)
        for host, theirs in far.items():
            self._peers.expect(host, theirs)

    def forget(self) -> None:
        """Forget which parts were announced."""
        self._ahead.forget()
        if "_peers" in self.__dict__:
            self._peers.forget()

    def lost(self, slices: Iterable[Slice]) -> set[str]:
        """Return the names of blocks that have no location left. Their content is not checked for damage.

        Blocks that should be in the store are assumed to be there.
        """
        found: set[str] = set()
        far: dict[str, dict[str, None]] = {}
        for one in slices:
            where = "store" if "store" in one.locations else next(self._locations(one), "")
            if not where or (where == "host" and self._is_gone(one.name)):
                found.add(one.name)
            elif where.startswith("host:"):
                far.setdefault(where.removeprefix("host:"), {})[one.name] = None
        return found.union(*self._gone_from(far)) if far else found

    def _gone_from(self, far: Mapping[str, Iterable[str]]) -> list[set[str]]:
        """Ask the hosts at the same time: hosts that vanished together each stay silent for seconds."""
        from concurrent.futures import ThreadPoolExecutor

        peers = self._peers
        with ThreadPoolExecutor(min(len(far), _ASKED)) as pool:
            return list(pool.map(lambda host: peers.gone(host, list(far[host])), far))

    def _is_gone(self, name: str) -> bool:
        return self.host is None or not self.host.path(self.on_host(name)).exists()

    def copy_to_store(self, ref: BlockRef) -> BlockRef:
        """Give a block a second location, in the store. Returns its reference with that, and with the digests that
        readers there need.

        Raises MissingError and CorruptError when the block is not readable, and StoreError.
        """
        host = self.host
        if host is not None and f"host:{host.host_id}" in ref.locations:
            data = host.map(self.on_host(ref.name))
            self._store.put(_object(self._folder, ref.name), data)  # its readers check it
            digests = [part_digest(part, data[part.offset : part.offset + part.length]) for part in ref.parts]
        else:
            digests = []
            self._store.put(_object(self._folder, ref.name), self._far_parts(ref, digests))
        return ref.in_store(digests)

    def _far_parts(self, ref: BlockRef, digests: list[bytes]) -> Iterator[Buffer]:
        """The parts of a block of another host, one at a time. Adds their digests."""
        for index, part in enumerate(ref.parts):
            data = self._from_the_first(ref.slice(index), _as_it_is)
            digests.append(part_digest(part, data))
            yield data

    def remove(self, ref: BlockRef) -> None:
        """Remove a block from this host and from the store. A missing block is not an error. Raises StoreError."""
        if self.host is not None and f"host:{self.host.host_id}" in ref.locations:
            self.host.delete(self.on_host(ref.name))
        if "store" in ref.locations:
            self._store.delete([_object(self._folder, ref.name)])

    def get(self, slice: Slice, *, shared: bool = False) -> Any:
        """Return the decoded value of a part, from the first location that has an undamaged copy.

        `shared`: other processes of this host will read the part too, so one process fetches it for all. Raises
        StoreError when the store does not answer, otherwise CorruptError when a copy was damaged, otherwise
        MissingError. The last two carry the name of the block.
        """
        return self._from_the_first(slice, decode, shared=shared)

    def pieces(self, slice: Slice) -> Iterator[Any]:
        """Yield the value of a part in the pieces in which it was put; each is decoded when the caller requests it.

        For a part that is too large for the available memory: a remote part goes to a file, unless it is a few MiB.
        Raises the errors of `get`.
        """
        for piece in self._from_the_first(slice, pieces, in_pieces=True):
            yield decode(piece)

    def _from_the_first(self, slice: Slice, use: Callable[[Buffer], T], **how: bool) -> T:
        failures: list[TreadleError] = []
        for location in self._locations(slice):
            try:
                return use(self._read(slice, location, **how))
            except (MissingError, CorruptError, StoreError) as error:
                failures.append(error)
        raise _worst(slice, failures)

    def close(self) -> None:
        """Disconnect from other hosts; a later `get` connects again."""
        if "_peers" in self.__dict__:
            self._peers.close()

    @cached_property
    def _peers(self) -> Peers:
        assert self._open_peers is not None
        return self._open_peers()

    def on_host(self, name: str) -> str:
        """The block's name in the host folder."""
        return f"{self._folder}/{name}"

    def _put_host(self, name: str, put: Callable[[HostFolder, str], None]) -> str:
        """Put the block and return its location, or "" when the host cannot take the block."""
        if self.host is None:
            return ""
        try:
            put(self.host, self.on_host(name))
        except StoreError as error:
            if error.retryable:
                return ""
            raise
        return f"host:{self.host.host_id}"

    def _locations(self, slice: Slice) -> Iterator[str]:
        if slice.inline:
            yield "inline"
        ours = f"host:{self.host.host_id}" if self.host is not None else ""
        if ours in slice.locations:
            yield "host"
        if self._open_peers is not None:
            yield from (one for one in slice.locations if one.startswith("host:") and one != ours)
        yield from (one for one in slice.locations if one.partition(":")[0] == "store")

    def _read(self, slice: Slice, location: str, *, shared: bool = False, in_pieces: bool = False) -> Buffer:
        """Return the part's authentic bytes. Bytes from a store need a digest: a checksum proves no origin.

        A peer has proved that it knows the run's key, and off loopback TLS protects the bytes that it sends.
        """
        data = self._fetch(slice, location, shared, in_pieces)
        part = slice.part
        if not location.startswith("host:"):
            self.read[location.partition(":")[0]] += part.length
        known = (location, slice.name, part.offset)
        mapped = _is_of_file(data, location)  # a copy is checked each time
        if mapped and len(data) == part.length and (known in self._checked or self._is_marked(slice, location, data)):
            return data
        if len(data) != part.length or (part.checksum and not is_sound(data, part)):
            raise CorruptError(f"block {slice.name} ({location}) does not match its checksum")
        if location.startswith("store") and sha256([data]) != part.digest:
            raise CorruptError(f"block {slice.name} ({location}) does not match its digest")
        if mapped:
            self._remember(known)
            self._mark(slice, location, data)
        return data

    def _folder_of(self, run: str) -> str:
        """Return the folder of a run's blocks in the store, if the store is on this host."""
        return self._in_store if run == self._folder else str(self._store.path(f"runs/{run}/blocks") or "")

    def _is_marked(self, slice: Slice, location: str, data: Buffer) -> bool:
        """Return whether a process of this host has checked the file: large blocks are checked once for all processes.

        A later write to the file makes its modification and change times equal; only the mark sets them apart.
        """
        with suppress(OSError):  # removed since it was mapped
            if location == "host" and _is_whole(slice, data):
                status = os.stat(self._path(slice.name))
                return not status.st_mode & 0o222 and status.st_mtime_ns < status.st_ctime_ns
        return False

    def _mark(self, slice: Slice, location: str, data: Buffer) -> None:
        """Mark a file that was checked as a whole by removing every write permission; a replacement file has the
        permission."""
        if location == "host" and _is_whole(slice, data):
            with suppress(OSError):
                os.chmod(self._path(slice.name), 0o400)

    def _path(self, name: str) -> str:
        return f"{self.host.root}/{self._folder}/{check_name(name)}" if self.host is not None else ""

    def _remember(self, known: tuple[str, str, int]) -> None:
        if len(self._checked) >= _REMEMBERED:
            self._checked.clear()
        self._checked.add(known)

    def _fetch(self, slice: Slice, location: str, shared: bool, in_pieces: bool) -> Buffer:
        part, spooled_from = slice.part, AT_ONCE if in_pieces else SPOOLED_FROM
        if location == "inline":
            return slice.inline
        if location.startswith("host:"):
            host, shared = location.removeprefix("host:"), shared or (part.length >= SPOOLED_FROM and not in_pieces)
            elsewhere = "store" in slice.locations
            fetch = partial(self._peers.fetch, host, slice.name, shared=shared, elsewhere=elsewhere)
            return fetch_range(fetch, part.offset, part.length, sys.maxsize if shared else spooled_from)
        if location == "host" and self.host is not None:
            name = self.on_host(slice.name)
            if part.length < _MAPPED_FROM:
                return self.host.read(name, part.offset, part.length)
            return self.host.map(name)[part.offset : part.offset + part.length]
        run = location.partition(":")[2] or self._folder
        if not (folder := self._folder_of(run)):
            read = partial(self._ahead.read, _object(run, slice.name))
            return fetch_range(read, part.offset, part.length, spooled_from)
        path = f"{folder}/{check_name(slice.name)}"
        with border(self._store.url, slice.name, reading=True):
            if part.length < _MAPPED_FROM:
                return read_range(path, part.offset, part.length)
            return map_file(path)[part.offset : part.offset + part.length]


def _object(folder: str, name: str) -> str:
    """The name in the store of a block of the run with that folder."""
    return f"runs/{folder}/blocks/{name}"


def _as_it_is(data: Buffer) -> Buffer:
    return data


def _is_of_file(data: Buffer, location: str) -> bool:
    """Return whether the bytes are a mapping of a block file, not a copy."""
    return isinstance(data, memoryview) and (
        type(data.obj) is mmap or (location == "host" and type(data.obj) is not bytes)
    )


def _is_whole(slice: Slice, data: Buffer) -> bool:
    return isinstance(data, memoryview) and slice.part.offset == 0 and len(data) == len(data.obj)  # type: ignore[arg-type]


def _index(
    encoded: Sequence[Sequence[Buffer]], counts: Sequence[int], *, digests: bool, checksums: bool = True
) -> tuple[Part, ...]:
    parts, offset = [], 0
    for buffers, count in zip(encoded, counts, strict=True):
        length = sum(map(len, buffers))
        checksum, digest = xxh3(buffers) if checksums else 0, sha256(buffers) if digests else b""
        parts.append(Part(offset, length, count, checksum, digest))
        offset += length
    return tuple(parts)


def _worst(slice: Slice, failures: Sequence[TreadleError]) -> TreadleError:
    for error in failures:
        if isinstance(error, StoreError):
            return error
    corrupt = [error for error in failures if isinstance(error, CorruptError)]
    hint = "Its producer must run again."
    if corrupt:
        damaged = CorruptError(f"block {slice.name} is damaged: {corrupt[0].message}", hint)
        damaged.block, damaged.__cause__ = slice.name, corrupt[0]
        return damaged
    gone = MissingError(f"block {slice.name} is gone from {', '.join(slice.locations) or 'everywhere'}", hint)
    gone.block = slice.name
    return gone
