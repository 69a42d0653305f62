"""Events that start runs, and their grouping into batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from msgspec import Struct

from treadle.dsl.triggers import KafkaTrigger
from treadle.primitives.events import Event, Record


class Match(Struct, frozen=True):
    """A record that starts a run, and its event."""

    record: Record
    event: Event
    run: str
    """Id of the record's own run, or of the batch that starts with the record."""


class KafkaBatch(Struct, frozen=True):
    """Consecutive matching records of one partition, decided by one version; a single record if the trigger has no
    `batch`."""

    version: int
    matched: tuple[Match, ...]
    """At least one."""
    end: int
    """The offset after the last record it covers, including records that do not match."""

    @property
    def run(self) -> str:
        return self.matched[0].run

    @property
    def first(self) -> Record:
        return self.matched[0].record

    @property
    def size(self) -> int:
        """Bytes of all values."""
        return sum(len(one.record.value or b"") for one in self.matched)


EventsOf: TypeAlias = Callable[[KafkaBatch, KafkaTrigger], Any]
"""Returns the value of `trigger.events` for a batch: a value for an input of type `dataset`. It may first write to the
store.

Called from any thread. Raises StoreError (retry), and UsageError for a batch that can never be passed on.
"""
