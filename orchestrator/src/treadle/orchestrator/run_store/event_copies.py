"""Copies of events: in the folder of the run that is given them, sealed under its key, named after what they hold."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

from .run_files import RunFiles

_NAME = re.compile(r"events/[0-9a-f]{16}")


def copy_name(packed: bytes) -> str:
    """Below the folder of its run."""
    return f"events/{hashlib.sha256(packed).hexdigest()[:16]}"


def hand_over(owner: RunFiles, heir: RunFiles, inputs: Mapping[str, Any]) -> None:
    """Give a run that gets these inputs of another one the copies that they name. Blocking.

    They are sealed anew: the tasks of a run have its own key only. Raises MissingError when the owner's are gone,
    CorruptError for what this deployment did not write, StoreError.
    """
    for name in _copies(inputs):
        heir.create_bytes(name, bytes(owner.load_bytes(name)))


def _copies(inputs: Mapping[str, Any]) -> Iterator[str]:
    """Names of copies. An input of another type may look like a range of events, but names no other object so."""
    for value in inputs.values():
        events = value.get("kafka") if isinstance(value, Mapping) else None
        name = events.get("copied") if isinstance(events, Mapping) else None
        if isinstance(name, str) and _NAME.fullmatch(name):
            yield name
