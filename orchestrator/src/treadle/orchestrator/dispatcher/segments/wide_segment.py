"""Assembly of a wide segment: which of its task groups are closed, and their totals.

All input is in the store, so every caller gets the same answer at any time. The first caller that finds every group
closed writes the segment's manifest. The manifest names the manifests of the groups, which keep the outcomes. Outcomes
are read here only if an output, a tolerance or a metric needs them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence

import msgspec
from msgspec import Struct

from treadle.primitives.errors import FailureClass

from ...plan.plan import Segment
from ...run_store.run_files import Manifest
from ...scheduler.instructions import Problem, Summary
from ...scheduler.task_groups import count_of, partition_of, segment_of
from ..decisions.dispatch import FailedRecords
from ..driver_context.run_context import RunContext
from ..ledger.ledger_state import lost_partitions
from ..tasks import outputs
from ..tasks.dataset_scope import feed_inputs
from ..tasks.summary import reads, summarise
from .failed_segment import SegmentFailed


class Unclosed(Struct, frozen=True):
    """Task groups that must run before the segment can be closed."""

    groups: tuple[int, ...]
    size: int
    """Partitions in a group."""


def is_wide(run: RunContext, segment: Segment) -> bool:
    """Returns whether the segment runs in task groups. Its plan may have left the number of partitions open.
    Blocking."""
    return bool(segment.group) and max(segment.partitions, _partitions(run, segment)) > segment.group


async def put_together(run: RunContext, segment: Segment, repair: Iterable[str], generation: int) -> Summary | Unclosed:
    """Close a wide segment whose groups are closed. Raises SegmentFailed, StoreError.

    A group that still has one of the blocks in `repair` counts as open.
    """
    await asyncio.to_thread(outputs.claim, segment, run.id)
    known = await asyncio.to_thread(run.files.closed_groups, segment.id)
    unclosed = await asyncio.to_thread(_unclosed, run, segment, known, repair)
    if unclosed:
        return Unclosed(unclosed, segment.group)
    manifest = await asyncio.to_thread(_assembled, run, segment, known)
    _judge(segment, manifest)
    await asyncio.to_thread(outputs.publish, segment, manifest, run.job, run.blocks)
    stored = msgspec.structs.replace(manifest, outcomes=(), groups=tuple(known[group] for group in sorted(known)))
    counts = await asyncio.to_thread(run.files.create_manifest, stored, generation)
    run.forget(segment.id)
    return counts.summary


# -- parts


def _partitions(run: RunContext, segment: Segment) -> int:
    return len(feed_inputs(segment.feed, run.scope, run.manifest, run.loop))


def _unclosed(run: RunContext, segment: Segment, known: Mapping[int, int], repair: Iterable[str]) -> tuple[int, ...]:
    wanted = {block for block in repair if segment_of(block) == segment.id}
    touched = {partition_of(block) // segment.group for block in wanted}

    def is_closed(group: int) -> bool:
        if group not in known or group not in touched:
            return group in known
        return not lost_partitions(run.files.group(segment.id, group, known[group]).outcomes, wanted)

    count = count_of(_partitions(run, segment), segment.group)
    return tuple(group for group in range(count) if not is_closed(group))


def _assembled(run: RunContext, segment: Segment, known: Mapping[int, int]) -> Manifest:
    """The committed set. It has no outcomes if the groups' own totals suffice."""
    partitions, names = _partitions(run, segment), sorted(known.items())
    if segment.output is None and not segment.tolerated and not any(segment.metrics.values()):
        summaries = [run.files.group_closing(segment.id, *name).summary for name in names]
        return Manifest(segment.id, partitions, (), _sum(summaries, partitions, segment))
    pieces = (run.files.group(segment.id, *name) for name in names)
    outcomes = tuple(outcome for piece in pieces for outcome in piece.outcomes)
    return Manifest(segment.id, partitions, outcomes, summarise(segment, outcomes, partitions))


def _sum(summaries: Sequence[Summary], partitions: int, segment: Segment) -> Summary:
    """The totals of groups, equal to `summarise` over their outcomes."""
    return msgspec.structs.replace(
        summarise(segment, (), partitions),
        rows=sum(one.rows for one in summaries),
        size=sum(one.size for one in summaries),
        read=reads(one.read for one in summaries),
        spilled=sum(one.spilled for one in summaries),
    )


def _judge(segment: Segment, manifest: Manifest) -> None:
    """Check the failed records of all groups together. Raises SegmentFailed when they are too many."""
    records = FailedRecords(segment.tolerated)
    for outcome in manifest.outcomes:
        records.add(outcome)
    exceeded = records.problem()
    if exceeded:
        where = f"attempts/{segment.id}"
        raise SegmentFailed(Problem(FailureClass.USER_ERROR, exceeded, segment.id, where))
