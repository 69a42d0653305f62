"""Bundles: the project's modules that a workflow's functions need, and functions taken by value, content-addressed.

Layout of the zip file: `modules/` goes on the import path, `captured/<digest>` holds functions by value, `bundle.json`
is the manifest. A bundle records the versions of third-party packages but does not contain them.
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
from .import_graph import ImportGraph, names_in_pickle

SIZE_LIMIT = 64 << 20
"""Unpacked bytes of all files of a bundle."""
MODULES, CAPTURED_FOLDER, MANIFEST = "modules", "captured", "bundle.json"
_SHOWN = 5


class BundleManifest(Struct, frozen=True):
    """`bundle.json`."""

    modules: tuple[str, ...]
    """Top-level modules and packages of the project in the bundle."""
    distributions: dict[str, str]
    """Third-party distributions that these modules import -> version at submission."""
    python: str
    """Minor version, such as `3.11`; functions by value need the same version."""


class Bundle(NamedTuple):
    digest: str
    """SHA-256 over names and contents, hexadecimal. Equal files have equal digests, however they were compressed."""
    data: bytes
    names: tuple[str, ...]
    """Names of the entries, sorted."""
    manifest: BundleManifest


def build_bundle(references: Iterable[str], roots: Sequence[Path], captured: Mapping[str, bytes]) -> Bundle:
    """Build the bundle that a worker needs to run the functions.

    `references` are `module:qualname`; captured ones are ignored. `roots` are folders of the project: every module
    imported from them is included, a package as a whole. `captured` maps `captured:<digest>` to the pickled function.
    These bytes are unpickled, so pass only trusted ones.

    Raises UsageError for a module that cannot be found or read, for a module named like one of the standard library,
    and for a bundle larger than 64 MiB.
    """
    project = ImportGraph(roots)
    for reference in references:
        if not reference.startswith(CAPTURED):
            project.require(reference.partition(":")[0], wanted_by=reference)
    for data in captured.values():
        for name in names_in_pickle(data):
            project.include(name)
    manifest = BundleManifest(tuple(sorted(project.modules)), installed(project.foreign), python_version())
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
    """Return the files after checking their total size, so that a huge file is rejected before it is read."""
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
