"""The segments that run in task groups: several drivers can share them, or one activity should not drive them. Pure."""

from __future__ import annotations

import msgspec

from ..plan.plan import Graph, Node, Segment
from ..scheduler.task_groups import count_of
from .transport import RunLocation

GROUP_TASKS = 5_000
"""Maximum of partitions in a task group, which one activity drives."""
_SHARES = 4
"""Maximum of groups for each driver. A driver that is slower, or comes later, takes fewer."""


def in_groups(graph: Graph, site: RunLocation) -> Graph:
    """The graph with its segments cut into groups of at most GROUP_TASKS partitions, or with the reason against it.

    With several drivers the groups are smaller, so that each driver gets a share of a segment. Segments inside a loop
    are not cut, since the loop is one activity.
    """
    return msgspec.structs.replace(graph, nodes=tuple(_grouped(node, site) for node in graph.nodes))


def _grouped(node: Node, site: RunLocation) -> Node:
    if not isinstance(node, Segment):
        return node
    size, why_not = _size(node, site), _why_one(node)
    if 0 < node.partitions <= size:
        return node if why_not else _told(node, site)
    if not node.partitions:
        return node if why_not else msgspec.structs.replace(node, group=size)
    if why_not:
        return msgspec.structs.replace(node, reasons=(*node.reasons, f"one task group: {why_not}"))
    count = count_of(node.partitions, size)
    reason = f"{count:,} task groups of at most {size:,} partitions, each for whichever driver has room"
    return msgspec.structs.replace(node, group=size, reasons=(*node.reasons, reason))


def _told(segment: Segment, site: RunLocation) -> Segment:
    """Note that a run may cut the segment, if this plan cannot know it."""
    can = site.executors[segment.policy.executor]
    if site.drivers or not can.shares_host or segment.partitions <= can.slots:
        return segment
    reason = "one task group: planned for one driver; where several serve the queue, they share it"
    return msgspec.structs.replace(segment, reasons=(*segment.reasons, reason))


def _size(segment: Segment, site: RunLocation) -> int:
    """Maximum of partitions in a group: enough for a driver's slots, or more.

    Every driver calls functions alike, so their segments need no second driver.
    """
    can = site.executors[segment.policy.executor]
    if site.drivers < 2 or not segment.partitions or not can.shares_host:
        return GROUP_TASKS
    return min(GROUP_TASKS, max(can.slots, count_of(segment.partitions, _SHARES * site.drivers)))


def _why_one(segment: Segment) -> str:
    """The reason for a single group. Empty: the groups are independent."""
    if segment.policy.gang:
        return "a gang runs together"
    return f"{segment.quorum:g}% of all partitions close it, whichever they are" if segment.quorum < 100 else ""
