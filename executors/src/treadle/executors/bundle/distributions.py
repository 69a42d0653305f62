"""Versions of the third-party distributions behind modules, with those of what they require."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def versions_of(modules: Iterable[str]) -> dict[str, str]:
    """Distribution -> version, of top-level modules and of all that these require; what is not there is left out."""
    wanted = set(modules)
    if not wanted:
        return {}
    found: dict[str, str] = {}
    pending = [name for module in wanted for name in providers().get(module, ())]
    while pending:
        name = _normal(pending.pop())
        if name not in found and (known := _distribution(name)):
            found[name], required = known
            pending += required
    return dict(sorted(found.items()))


@cache
def providers() -> dict[str, list[str]]:
    """Top-level module -> distributions; looks at every installed one, so once for a process."""
    from importlib import metadata

    return {module: list(names) for module, names in metadata.packages_distributions().items()}


@cache
def _distribution(name: str) -> tuple[str, tuple[str, ...]] | None:
    """Version and requirements, those of extras left out; None: it is not installed."""
    from importlib import metadata

    try:
        found = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return None
    required = [match[0] for text in found.requires or () if "extra ==" not in text and (match := _NAME.match(text))]
    return found.version, tuple(required)


def _normal(name: str) -> str:
    """As PEP 503 spells it."""
    return re.sub(r"[-_.]+", "-", name).lower()
