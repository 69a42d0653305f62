"""The account of a segment in a ledger: what is on record of it, and how more gets there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .group_commit import LedgerWriter
from .ledger import Lost, Record
from .ledger_state import SegmentHistory, lost_partitions


@dataclass
class Account:
    """Of one segment, or of a task group of it, which has a ledger of its own."""

    name: str
    """The segment, as it is called in the loops around it."""
    writer: LedgerWriter
    history: SegmentHistory
    group: int = -1
    """-1: all of it."""
    pace: float = 0.0
    """Seconds that its partitions took before; 0: not known."""

    def enter(self, *records: Record) -> None:
        """In one object of the ledger, and in the history: a loop does not read it anew to take a segment up again."""
        self.writer.append(*records)
        for record in records:
            self.history.apply(record, self.name)

    def take_back(self, blocks: Iterable[str]) -> tuple[int, ...]:
        """Commits whose blocks are gone no longer count; their partitions. Those made again since are others."""
        lost = lost_partitions(self.history.committed.values(), blocks)
        if lost:
            self.enter(Lost(self.name, lost))
        return lost
