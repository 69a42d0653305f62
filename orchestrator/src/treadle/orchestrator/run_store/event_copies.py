"""Copies of events, in the folder of the run that receives them, sealed under its key, named by a digest of their
content."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

from .run_files import RunFiles

_NAME = re.compile(r"events/[0-9a-f]{16}")


def copy_name(packed: bytes) -> str:
    """The name of a copy within the run's folder."""
    return f"events/{hashlib.sha256(packed).hexdigest()[:16]}"


def hand_over(owner: RunFiles, heir: RunFiles, inputs: Mapping[str, Any]) -> None:
    """Copy the events that these inputs name from one run to another. Blocking.

    They are sealed again, since a run's tasks have only the run's key. Raises MissingError when the owner's copies are
    gone, CorruptError for objects that this deployment did not write, StoreError.
    """
    for name in _copies(inputs):
        heir.create_bytes(name, bytes(owner.load_bytes(name)))


def _copies(inputs: Mapping[str, Any]) -> Iterator[str]:
    """Names of copies. An input of another type may look like a range of events, but names no other object this way."""
    for value in inputs.values():
        events = value.get("kafka") if isinstance(value, Mapping) else None
        name = events.get("copied") if isinstance(events, Mapping) else None
        if isinstance(name, str) and _NAME.fullmatch(name):
            yield name
