"""What there should be at a provider beside what there is. Pure.

Resources are compared as documents. Values of variables may be secret: of them only the names are ever told.
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
    """What becomes of one resource."""

    resource: str
    """Such as `function treadle-1024`."""
    did: Literal["new", "changed", "unchanged", "removed", "left"]
    """`left`: it is not wanted any more, and was not asked to be removed."""
    differs: tuple[str, ...] = ()
    """What is changed, a line for each."""


def compare(resource: str, wanted: Document, found: Document | None) -> Change:
    """What making `found` into `wanted` takes. What `wanted` does not mention may be anything."""
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
