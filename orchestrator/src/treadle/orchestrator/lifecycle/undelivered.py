"""Undelivered lifecycle events in the run's record: `untold/<hash of the id>` in its folder."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import msgspec

from treadle.primitives.encoding.decoding import known
from treadle.primitives.events import Event

from ..run_store.run_files import RunFiles
from .delivery import Untold


def untold_of(files: RunFiles) -> list[Untold]:
    """The undelivered events, oldest first. Raises StoreError, CorruptError."""
    names = [f"untold/{info.name.rsplit('/', 1)[1]}" for info in files.store.list(_folder(files))]
    found = [msgspec.json.decode(files.load_bytes(name), type=known(Untold)) for name in names]
    return sorted(found, key=lambda one: one.event.time or "")


def settle(files: RunFiles, untold: Sequence[Untold], kept: Sequence[Event]) -> None:
    """Record the undelivered events, and remove the recorded ones that are delivered now. Raises StoreError."""
    lost = {one.event.id for one in untold}
    for one in untold:
        files.create_bytes(f"untold/{_name(one.event)}", msgspec.json.encode(one))
    files.store.delete(f"{_folder(files)}{_name(event)}" for event in kept if event.id not in lost)


def _folder(files: RunFiles) -> str:
    return f"{files.prefix}/untold/"


def _name(event: Event) -> str:
    return hashlib.sha256(event.id.encode()).hexdigest()[:32]
