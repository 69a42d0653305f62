"""The order and the progress of an activity: plain values, importable without the rest of the dispatcher."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct

from ..scheduler.instructions import RunNode

Assumption = Literal["", "done", "retry"]
"""The user's decision about attempts with an unknown outcome. Empty: there is none."""


class Ticket(Struct, frozen=True):
    """The identity of a request to an activity. The answer repeats it; answers to other requests are ignored."""

    execution: str = ""
    """Temporal's run id."""
    number: int = 0


class NodeOrder(Struct, frozen=True, omit_defaults=True):
    """The workflow's order to run a node, or one of its task groups."""

    run: str
    node: str
    bindings: dict[str, Any] = {}
    """The run-time values that the node's expressions need (see `RunNode`)."""
    repair: tuple[str, ...] = ()
    """Blocks to make again."""
    limit: int = 0
    """Maximum of tasks at once. 0: no limit."""
    group: int = -1
    """The task group of the node. -1: the node itself."""
    resumption: int = 1
    assume: Assumption = ""
    since: float = 0.0
    """For a group: the start of its node's first group, in seconds since the epoch."""
    passed: tuple[str, ...] = ()
    """Barriers passed since the last order, if lifecycle events are on."""
    then: tuple[NodeOrder, ...] = ()
    """Orders for following nodes, to run in the same activity while they end soon."""
    ticket: Ticket = Ticket()


def order_of(run: str, step: RunNode, resumption: int = 1, assume: Assumption = "") -> NodeOrder:
    """The order that carries out a step of the scheduler, without the steps that follow it."""
    return NodeOrder(run, step.node, step.bindings, step.repair, step.limit, step.group, resumption, assume)


def environment(sealed: Mapping[str, Any], bindings: Mapping[str, Any]) -> dict[str, Any]:
    """The variables of expressions. Values of a message never replace values sealed at submit."""
    return {**bindings, **sealed}


def skipped_stages(bindings: Mapping[str, Any]) -> set[str]:
    """The stages among the bindings that were skipped."""
    return {stage for stage, known in bindings.get("stages", {}).items() if known is None}


class Progress(Struct, frozen=True):
    """Counts for heartbeats and `watch`."""

    segment: str
    partitions: int
    committed: int
    failed: int
    retried: int
    running: int
    size: int
    """Bytes of blocks and parts so far."""
    group: int = -1
    """The task group that the counts are for. -1: the whole segment."""
    total: int = 0
    """For a group: the number of partitions of the segment."""
