"""The account of a segment in a ledger: its records so far, and the writer of further ones."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .group_commit import LedgerWriter
from .ledger import Lost, Record
from .ledger_state import SegmentHistory, lost_partitions


@dataclass
class Account:
    """The account of one segment, or of one of its task groups. A task group has its own ledger."""

    name: str
    """The segment's name within its loops."""
    writer: LedgerWriter
    history: SegmentHistory
    group: int = -1
    """The task group. -1: the whole segment."""
    pace: float = 0.0
    """Seconds that a partition took before. 0: not known."""

    def enter(self, *records: Record) -> None:
        """Add records to one object of the ledger and to the history, so that a loop need not reread the ledger."""
        self.writer.append(*records)
        for record in records:
            self.history.apply(record, self.name)

    def take_back(self, blocks: Iterable[str]) -> tuple[int, ...]:
        """Take back the commits whose blocks are gone. Returns their partitions, without those recomputed since."""
        lost = lost_partitions(self.history.committed.values(), blocks)
        if lost:
            self.enter(Lost(self.name, lost))
        return lost
