"""Events that shall start runs, and those that one run gets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from msgspec import Struct

from treadle.dsl.triggers import KafkaTrigger
from treadle.primitives.events import Event, Record


class Match(Struct, frozen=True):
    """A record that shall start a run, and the event it is."""

    record: Record
    event: Event
    run: str
    """Of a record that has its own, or that its batch begins with."""


class Batch(Struct, frozen=True):
    """Consecutive matching records of one partition, judged by one version; without `batch` in the trigger, one."""

    version: int
    matched: tuple[Match, ...]
    """At least one."""
    end: int
    """The offset after the last record it covers; those that do not match are covered too."""

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


EventsOf: TypeAlias = Callable[[Batch, KafkaTrigger], Any]
"""What `trigger.events` is worth for a batch: a value for an input of type `dataset`. May write to the store first.

Called from any thread. Raises StoreError (try again), and UsageError for a batch that can never be handed over."""
