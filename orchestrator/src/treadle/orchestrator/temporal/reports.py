"""Converts the reports of activities to events of the scheduler. Pure."""

from __future__ import annotations

from temporalio.exceptions import ActivityError, ApplicationError, FailureError

from ..dispatcher.orders import NodeOrder, Ticket
from ..protocol.messages import NodeReport
from ..scheduler.instructions import (
    Event,
    GroupDone,
    NodeDone,
    NodeFailed,
    NodeGrouped,
    NodeLost,
    NodeStopped,
    Problem,
)


def answer_to(order: NodeOrder, report: NodeReport) -> NodeReport:
    """The report if it answers this order. A report for another order counts as forged."""
    refused = report.problem is not None and report.ticket == Ticket()
    return report if refused or report.ticket == order.ticket else NodeReport.refused("it answers another request")


def events_of(nodes: list[str], group: int, report: NodeReport) -> list[Event]:
    """The events of an activity's nodes: the finished ones, the reported one, and those not begun."""
    done = [NodeDone(node, report.before[node]) for node in nodes if node in report.before]
    last, *left = nodes[len(done) :]
    return [*done, _event(last, group, report), *map(NodeStopped, reversed(left))]


def _event(node: str, group: int, report: NodeReport) -> Event:
    if report.summary is not None:
        return NodeDone(node, report.summary)
    if report.problem is not None:
        return NodeFailed(node, report.problem, group)
    if report.lost:
        return NodeLost(node, tuple(report.lost), group)
    if report.groups:
        return NodeGrouped(node, tuple(report.groups), report.seats, report.size)
    return GroupDone(node, group, report.seats) if report.closed else NodeStopped(node, group)


def cause_of(error: FailureError) -> ApplicationError | None:
    """The activity's own error. A local activity raises it as it is. None: the server or the SDK ended the activity."""
    found = error.cause if isinstance(error, ActivityError) else error
    return found if isinstance(found, ApplicationError) else None


def unexpected(node: str, error: FailureError) -> Problem:
    """The failure of an activity that returned no report."""
    cause = cause_of(error)
    return Problem(cause.type or "internal" if cause else "internal", cause.message if cause else str(error), node)
