"""Combines the task groups of a wide segment into one view. They are separate activities; Temporal lists only running
ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from treadle.orchestrator.dispatcher.orders import Progress
from treadle.orchestrator.plan.plan import Segment
from treadle.orchestrator.run_requests.run_views import NodeView
from treadle.orchestrator.run_store.run_files import GroupClosing, RunFiles


class SegmentTaskGroups:
    """The task groups of a run's segments: closed groups, each read once, and earlier heartbeats."""

    def __init__(self, files: RunFiles) -> None:
        self._files = files
        self._known: dict[tuple[str, int, int], GroupClosing] = {}
        self._retried: dict[str, dict[int, int]] = {}

    def retried(self, segment: str, now: Iterable[Progress] = ()) -> int:
        """Retried attempts of the running groups (`now`) and of earlier ones, whose manifests do not count retries."""
        seen = self._retried.setdefault(segment, {})
        seen |= {one.group: one.retried for one in now}
        return sum(seen.values())

    def closed(self, segment: str) -> dict[int, GroupClosing]:
        """group -> its newest manifest. Blocking."""
        found = {}
        for group, generation in self._files.closed_groups(segment).items():
            name = (segment, group, generation)
            if name not in self._known:
                self._known[name] = self._files.group_closing(*name)
            found[group] = self._known[name]
        return found


def sum_of(segment: Segment, beats: Sequence[NodeView], groups: SegmentTaskGroups) -> NodeView:
    """The running and closed groups as one node; the single heartbeat if the segment has no groups."""
    running = {one.group: one for beat in beats for one in beat.progress if one.group >= 0}
    over = [one for group, one in groups.closed(segment.id).items() if group not in running]
    if not running and not over:
        return beats[0]
    progress = Progress(
        segment.id,
        max([segment.partitions, *(one.total for one in running.values())]),
        sum(one.committed for one in running.values()) + sum(one.expected for one in over),
        sum(one.failed for one in running.values()),
        groups.retried(segment.id, running.values()),
        sum(one.running for one in running.values()),
        sum(one.size for one in running.values()) + sum(one.summary.size for one in over),
    )
    failures = [beat.last_failure for beat in beats if beat.last_failure]
    attempt = max(beat.attempt for beat in beats)
    return NodeView(segment.id, attempt, (progress,), "", failures[0] if failures else "")
