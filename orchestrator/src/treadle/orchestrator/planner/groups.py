"""Which segments run in task groups: those with more partitions than one activity should drive. Pure."""

from __future__ import annotations

import msgspec

from ..groups import count_of
from ..plan import Graph, Node, Segment

GROUP_TASKS = 5_000
"""Most partitions of a task group: what one activity drives."""


def in_groups(graph: Graph) -> Graph:
    """The graph, its wide segments cut into groups of at most GROUP_TASKS partitions, or the reason why not.

    Those inside of a loop are not: the loop is one activity.
    """
    return msgspec.structs.replace(graph, nodes=tuple(_grouped(node, GROUP_TASKS) for node in graph.nodes))


def _grouped(node: Node, size: int) -> Node:
    if not isinstance(node, Segment) or 0 < node.partitions <= size:
        return node
    why_not = _why_one(node)
    if not node.partitions:
        return node if why_not else msgspec.structs.replace(node, group=size)
    if why_not:
        return msgspec.structs.replace(node, reasons=(*node.reasons, f"one task group: {why_not}"))
    count = count_of(node.partitions, size)
    reason = f"{count:,} task groups of at most {size:,} partitions, each for whichever driver has room"
    return msgspec.structs.replace(node, group=size, reasons=(*node.reasons, reason))


def _why_one(segment: Segment) -> str:
    """Empty: its groups need nothing of each other."""
    if segment.policy.gang:
        return "a gang runs together"
    return f"{segment.quorum:g}% of all partitions close it, whichever they are" if segment.quorum < 100 else ""
