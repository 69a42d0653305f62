"""Output folders: the right to write, parts that appear whole and once, and the manifest that is written last."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct

from ..errors import DataError, MissingError, UsageError
from ..stores.atomic_files import Buffer, create_file, make_folders, sync_folder
from ..stores.input_files import absolute_uri, is_local, remote
from ..stores.store import Store
from ..stores.store_errors import border

MANIFEST = "_manifest.json"
OWNER = "_owner.json"
_PART = re.compile(r"part-\d{5,}\.[a-z]+")
_REMAINS = re.compile(r"\.tmp-[0-9a-f]{16}")
_DEAD = 60.0
"""Seconds without a write after which a file's writer counts as ended: a second dispatcher may write for a moment."""
_CHUNK = 8 << 20
ONE_REQUEST = 64 << 20
"""Bytes per call to an object store."""
_MODE = 0o666
"""Mode of a file, before the umask: that of a file which a program opens to write."""


class PartInfo(Struct, frozen=True):
    """A part as written."""

    name: str
    size: int
    digest: str
    """SHA-256 of the bytes, hexadecimal."""


def write_part(uri: str, index: int, buffers: Iterable[Buffer], suffix: str) -> PartInfo:
    """Write `<uri>/part-<index>.<suffix>` unless it exists; an existing part with the same bytes counts as written.

    `buffers` are iterated twice. Buffers from an iterable other than a sequence are not held all at once, unless they
    are few enough for one request to an object store. The part is durable on return. Raises DataError when the part
    exists with other bytes, StoreError when it cannot be written.
    """
    folder = _Folder(uri)
    part = _describe(f"part-{index:05d}.{suffix}", buffers)
    if not folder.create(part.name, buffers, part.size) and folder.describe(part.name) != part:
        raise DataError(
            f"{folder.shown(part.name)} is already there with other bytes",
            "The function is not deterministic, or something else wrote here: write to another uri, "
            "or start a new run with `ifExists: replace`.",
        )
    return part


def claim_output(uri: str, run_id: str, if_exists: str = "fail") -> None:
    """Make `run_id` the only run that writes below `uri`; the same run may claim it again and continue.

    Raises UsageError when another run's marker, a manifest or parts exist and `if_exists` is not `replace`. `replace`
    removes them, the manifest first, so that a half-removed output never looks complete.
    """
    folder = _Folder(uri)
    for name in check_output(uri, run_id, if_exists):
        folder.remove(name)
    if not folder.create(OWNER, [_json({"run": run_id})]) and folder.owner() != run_id:
        raise UsageError(f"run {folder.owner()} claimed {uri} at the same time", "Write each run to a uri of its own.")


def check_output(uri: str, run_id: str, if_exists: str = "fail") -> list[str]:
    """Return the names that `claim_output` would remove. Changes nothing, and raises the UsageError of
    `claim_output`."""
    folder = _Folder(uri)
    names = folder.own_names()
    owner = folder.owner() if OWNER in names else ""
    present = names if owner != run_id else []
    if present and if_exists != "replace":
        whose = f"run {owner}" if owner else "something else"
        raise UsageError(
            f"{uri} already holds the output of {whose} ({present[0]})",
            "Write to another uri, for example with ${{ run.id }} in it, or, for an `output`, set `ifExists: replace`.",
        )
    return present


def release_output(uri: str, run_id: str) -> None:
    """Remove the files that `run_id` wrote below `uri`, so that it can write again; files of other runs stay."""
    folder = _Folder(uri)
    if folder.owner() == run_id:
        for name in folder.own_names():
            folder.remove(name)


def write_manifest(uri: str, manifest: dict[str, Any]) -> None:
    """Write `_manifest.json`, the sign that the output is complete; writing the same manifest again changes nothing.

    If it names a `run`, raises UsageError when another run has claimed the output since. Raises DataError when a
    manifest with other content exists.
    """
    folder = _Folder(uri)
    owner = folder.owner()
    if owner and "run" in manifest and owner != manifest["run"]:
        raise UsageError(f"run {owner} has replaced the output {uri}", "Its output is there now; write to another uri.")
    data = _json(manifest)
    if not folder.create(MANIFEST, [data]) and folder.get(MANIFEST) != data:
        raise DataError(f"{folder.shown(MANIFEST)} is already there with other content", "Write to another uri.")
    folder.remove_remains()


def _json(value: dict[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, indent=1).encode() + b"\n"


def _describe(name: str, buffers: Iterable[Buffer]) -> PartInfo:
    digest = hashlib.sha256()
    size = 0
    for buffer in buffers:
        digest.update(buffer)
        size += memoryview(buffer).nbytes
    return PartInfo(name, size, digest.hexdigest())


class _Folder:
    """An output folder: on this machine (its files belong to the user and are not private), or in a store."""

    def __init__(self, uri: str) -> None:
        self.uri = absolute_uri(uri).rstrip("/")
        self.local = is_local(self.uri)
        if self.local:
            self.store: Store = Store.open(Path(self.uri).as_uri())
            self.prefix = ""
        else:
            self.store, self.prefix = remote(self.uri)

    def _name(self, name: str) -> str:
        return f"{self.prefix}/{name}" if self.prefix else name

    def shown(self, name: str) -> str:
        return f"{self.uri}/{name}"

    def create(self, name: str, buffers: Iterable[Buffer], size: int = 0) -> bool:
        if not self.local:
            return self.store.create(self._name(name), list(buffers) if size <= ONE_REQUEST else iter(buffers))
        with border(self.uri, name, writing=True):
            above = make_folders(Path(self.uri), 0o777)
            created = create_file(Path(self.uri, name), buffers, _MODE)
            for folder in above:
                sync_folder(folder)
            return created

    def get(self, name: str) -> bytes:
        return self.store.get(self._name(name))

    def describe(self, name: str) -> PartInfo:
        """Describe the file `name`, read in chunks."""
        info = self.store.head(self._name(name))
        digest, size = hashlib.sha256(), 0
        while info is not None and (chunk := self.store.get_range(self._name(name), size, _CHUNK)):
            digest.update(chunk)
            size += len(chunk)
        return PartInfo(name, size, digest.hexdigest())

    def remove(self, name: str) -> None:
        self.store.delete([self._name(name)])

    def remove_remains(self) -> None:
        """Remove the half-written files of killed writers. A live writer here has lost the output to another run."""
        for path in Path(self.uri).iterdir() if self.local else ():
            with contextlib.suppress(OSError):
                if _REMAINS.fullmatch(path.name) and path.stat().st_mtime < time.time() - _DEAD:
                    path.unlink()

    def owner(self) -> str:
        """Return the run that claimed this folder; empty when none did."""
        try:
            return str(json.loads(self.get(OWNER))["run"])
        except MissingError:
            return ""
        except (ValueError, TypeError, KeyError):
            return "unknown"

    def own_names(self) -> list[str]:
        """Names of an earlier output: manifest, parts, marker, in the order in which they are removed."""
        names = set(self._names())
        parts = sorted(name for name in names if _PART.fullmatch(name))
        return [*({MANIFEST} & names), *parts, *({OWNER} & names)]

    def _names(self) -> Iterator[str]:
        if self.local:
            with border(self.uri), contextlib.suppress(FileNotFoundError):
                yield from os.listdir(self.uri)
            return
        start = len(self.prefix) + 1 if self.prefix else 0
        yield from (info.name[start:] for info in self.store.list(self.prefix))
