"""Bundles: the project's modules that a workflow's functions need, and functions taken by value, content-addressed.

Layout of the zip: `modules/` goes on the path of imports, `captured/<digest>` are functions by value, `bundle.json`
says what it is. Third-party packages are not in it; their versions are recorded.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec import Struct

from treadle.primitives.errors import UsageError
from treadle.primitives.functions import CAPTURED

from ..archive import zipped
from .distributions import installed
from .import_graph import Project, names_in_pickle

SIZE_LIMIT = 64 << 20
"""Bytes of all files of a bundle, unpacked."""
MODULES, CAPTURED_FOLDER, MANIFEST = "modules", "captured", "bundle.json"
_SHOWN = 5


class Manifest(Struct, frozen=True):
    """`bundle.json`."""

    modules: tuple[str, ...]
    """Top-level modules and packages of the project in it."""
    distributions: dict[str, str]
    """Third-party distributions these import -> the version at submit."""
    python: str
    """Minor version, such as `3.11`; functions by value need the same one."""


class Bundle(NamedTuple):
    digest: str
    """SHA-256 over names and contents, hexadecimal: the same for the same files, however they were compressed."""
    data: bytes
    names: tuple[str, ...]
    """Of its entries, sorted."""
    manifest: Manifest


def build_bundle(references: Iterable[str], roots: Sequence[Path], captured: Mapping[str, bytes]) -> Bundle:
    """What a worker needs to run the functions.

    `references` are `module:qualname` (captured ones are passed over); `roots` are folders of the project: whatever
    is imported from below them goes along, a package as a whole; `captured` maps `captured:<digest>` to the bytes,
    which are unpickled: only one's own may be given. Raises UsageError for a module that cannot be found or read, one
    named like a module of the standard library, and a bundle larger than 64 MiB.
    """
    project = Project(roots)
    for reference in references:
        if not reference.startswith(CAPTURED):
            project.require(reference.partition(":")[0], wanted_by=reference)
    for data in captured.values():
        for name in names_in_pickle(data):
            project.include(name)
    manifest = Manifest(tuple(sorted(project.modules)), installed(project.foreign), python_version())
    entries = {f"{MODULES}/{name}": path.read_bytes() for name, path in _checked_files(project.files).items()}
    entries |= {f"{CAPTURED_FOLDER}/{name.removeprefix(CAPTURED)}": data for name, data in captured.items()}
    entries[MANIFEST] = msgspec.json.format(msgspec.json.encode(manifest, order="sorted"))
    _check_size({name: len(data) for name, data in entries.items()})
    return Bundle(content_digest(entries), zipped(entries, 0o600), tuple(sorted(entries)), manifest)


def content_digest(entries: Mapping[str, bytes]) -> str:
    """SHA-256 over the sorted entries, each as name, NUL, SHA-256 of the content, newline."""
    digest = hashlib.sha256()
    for name in sorted(entries):
        digest.update(f"{name}\0{hashlib.sha256(entries[name]).hexdigest()}\n".encode())
    return digest.hexdigest()


def python_version() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def _checked_files(files: Mapping[str, Path]) -> Mapping[str, Path]:
    """The files, once their sizes are known to fit: a huge one is refused before it is read."""
    _check_size({name: path.stat().st_size for name, path in files.items()})
    return files


def _check_size(sizes: Mapping[str, int]) -> None:
    total = sum(sizes.values())
    if total <= SIZE_LIMIT:
        return
    largest = sorted(sizes, key=lambda name: -sizes[name])[:_SHOWN]
    listed = ", ".join(f"{name} ({sizes[name] / 2**20:.1f} MiB)" for name in largest)
    raise UsageError(
        f"the project's code has {total / 2**20:.0f} MiB, more than the {SIZE_LIMIT >> 20} MiB a bundle may have",
        f"Move data out of the packages and read it as an input. The largest files: {listed}",
    )
