"""A task group of a wide segment: what `segment` does for all partitions, done for consecutive ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from ...groups import bounds_of
from ...plan import Segment, Tolerance
from ..orders import Progress
from ..record.history import SegmentHistory
from ..record.writer import LedgerWriter
from ..site.pool import SlotPool
from ..site.run import Run
from ..tasks.scope import Scope
from .segment import SegmentRun


class GroupRun(SegmentRun):
    """Its ledger and its manifest hold its own partitions; what they read and make is as in the segment as a whole."""

    def __init__(
        self,
        run: Run,
        segment: Segment,
        scope: Scope,
        bindings: Mapping[str, Any],
        writer: LedgerWriter,
        history: SegmentHistory,
        pool: SlotPool,
        limit: int = 0,
        *,
        group: int,
        since: float,
    ) -> None:
        """`since`: when the first group of the segment began, from where a deadline counts."""
        self._group = group
        history.opened = since or history.opened
        alone = msgspec.structs.replace(segment, tolerated=_at_once(segment.tolerated))
        super().__init__(run, alone, scope, bindings, writer, history, pool, limit)

    def progress(self) -> Progress:
        return msgspec.structs.replace(super().progress(), group=self._group, total=len(self._inputs))

    def _own(self) -> range:
        return bounds_of(self._group, len(self._inputs), self._segment.group)

    def _writer_name(self) -> str:
        return f"{self._group}-{super()._writer_name()}"


def _at_once(tolerated: Mapping[str, Tolerance]) -> dict[str, Tolerance]:
    """Percentages are of all groups, and judged when they are put together."""
    return {stage: msgspec.structs.replace(one, percent=-1.0) for stage, one in tolerated.items()}
