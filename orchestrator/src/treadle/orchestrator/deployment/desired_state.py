"""Compares the wanted resources of a provider with the existing ones. Pure.

Resources are compared as documents. Values of variables may be secret, so only their names are shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeAlias

from msgspec import Struct

Document: TypeAlias = Mapping[str, Any]
VARIABLES = "variables"
"""The key of a document whose values are never shown."""
_SHOWN = 60


class Change(Struct, frozen=True):
    """The change of one resource."""

    resource: str
    """For example `function treadle-1024`."""
    did: Literal["new", "changed", "unchanged", "removed", "left"]
    """`left`: the resource is surplus, and its removal was not requested."""
    differs: tuple[str, ...] = ()
    """One line for each difference."""


def compare(resource: str, wanted: Document, found: Document | None) -> Change:
    """The change that turns `found` into `wanted`. Keys that `wanted` lacks may have any value."""
    if found is None:
        return Change(resource, "new")
    lines = tuple(line for key in wanted if wanted[key] != found.get(key) for line in _lines(key, wanted, found))
    return Change(resource, "changed" if lines else "unchanged", lines)


def _lines(key: str, wanted: Document, found: Document) -> Iterable[str]:
    if key != VARIABLES:
        return [f"{key}: {_short(found.get(key))} -> {_short(wanted[key])}"]
    new, old = wanted[key], found.get(key) or {}
    return [
        f"variable {name}: {_fate(name, new, old)}" for name in sorted({*new, *old}) if new.get(name) != old.get(name)
    ]


def _fate(name: str, new: Mapping[str, str], old: Mapping[str, str]) -> str:
    if name not in old:
        return "new"
    return "changed" if name in new else "removed"


def _short(value: Any) -> str:
    text = "nothing" if value is None else str(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def surplus(prefix: str, known: Iterable[str], wanted: Iterable[str]) -> list[str]:
    """Names of treadle's own resources, `<prefix>-<megabytes>`, that are not wanted any more."""
    own = re.compile(rf"{re.escape(prefix)}-\d+")
    return sorted(name for name in {*known} - {*wanted} if own.fullmatch(name))
