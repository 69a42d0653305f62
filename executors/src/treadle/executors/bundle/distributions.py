"""Versions of the third-party distributions that provide modules, and of their requirements."""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path

from treadle.primitives.errors import UsageError

from .import_graph import ENGINE, imported_names, sources_elsewhere

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def installed(modules: Iterable[str]) -> dict[str, str]:
    """Distribution -> version, for top-level modules."""
    foreign = set(modules) - sys.stdlib_module_names
    names = {name for module in foreign for name in providers().get(module, ())} if foreign else set()
    return {name: about[0] for name in sorted(names) if (about := _distribution(name))}


class Libraries:
    """Versions and sources of modules outside the project. The sources of a module without a version are read once."""

    def __init__(self) -> None:
        self._sources: dict[str, tuple[str, frozenset[str]]] = {}

    def versions_of(self, modules: Iterable[str]) -> dict[str, str]:
        """Distribution -> version, for top-level modules and all their requirements. Distributions that are not
        installed are omitted.

        A module that is not installed from a distribution has no meaningful version. It is listed as name -> digest of
        its sources.
        """
        own, known = self._own(modules)
        found: dict[str, str] = {}
        pending = [name for module in known for name in providers().get(module, ())] if known else []
        while pending:
            name = _normal(pending.pop())
            if name not in found and (about := _distribution(name)):
                found[name], required = about
                pending += required
        return dict(sorted((found | own).items()))

    def _own(self, modules: Iterable[str]) -> tuple[dict[str, str], set[str]]:
        """(digests of the modules that are not installed, all modules reached from the given ones)."""
        own: dict[str, str] = {}
        known: set[str] = set()
        pending = [*modules]
        while pending:
            module = pending.pop()
            if module in known or module in sys.stdlib_module_names or module == ENGINE:
                continue
            known.add(module)
            digest, imported = self._read(module)
            if digest:
                own[module] = digest
                pending += imported
        return own, known

    def _read(self, module: str) -> tuple[str, frozenset[str]]:
        """(digest of its sources, top-level modules they import). The digest is empty if the module is installed or
        missing."""
        if module not in self._sources:
            files = sources_elsewhere(module)
            self._sources[module] = (_digest(files), _imported(files)) if files else ("", frozenset())
        return self._sources[module]


def _imported(files: Iterable[Path]) -> frozenset[str]:
    names: set[str] = set()
    for file in [file for file in files if file.suffix == ".py"]:
        with suppress(UsageError):  # written for another Python version, and not imported here
            names |= set(imported_names(file))
    return frozenset(names)


def _digest(files: Iterable[Path]) -> str:
    each = (f"{file.name}\0{hashlib.sha256(file.read_bytes()).hexdigest()}\n" for file in files)
    return hashlib.sha256("".join(each).encode()).hexdigest()[:32]


@cache
def providers() -> dict[str, list[str]]:
    """Top-level module -> distributions. Cached, because it reads the metadata of every installed distribution."""
    from importlib import metadata

    return {module: list(names) for module, names in metadata.packages_distributions().items()}


@cache
def _distribution(name: str) -> tuple[str, tuple[str, ...]] | None:
    """Version and requirements, without the requirements of extras; None: it is not installed."""
    from importlib import metadata

    try:
        found = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return None
    required = [match[0] for text in found.requires or () if "extra ==" not in text and (match := _NAME.match(text))]
    return found.version, tuple(required)


def _normal(name: str) -> str:
    """Normalise a name as PEP 503 specifies."""
    return re.sub(r"[-_.]+", "-", name).lower()
