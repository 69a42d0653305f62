"""Size limits of messages in Temporal. The server would be asked for ever to accept a larger payload."""

from __future__ import annotations

import json
from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from treadle.primitives.errors import FailureClass, UsageError

from ..plan.plan import Graph
from ..scheduler.instructions import Problem, Summary
from . import messages
from .messages import PAYLOAD, NodeReport, Opened

_FEWER = "Put stages into workflows of their own (`type: workflow`), or into a loop."


def check_graph(graph: Graph) -> None:
    """Raises UsageError for a workflow with too many stages."""
    size = _size(messages.slim(graph))
    if size > PAYLOAD:
        text = f"the workflow is too large: what Temporal must know of its {len(graph.nodes):,} parts is {size:,} bytes"
        raise UsageError(f"{text}, and {PAYLOAD:,} are allowed", _FEWER)


def check_opened(opened: Opened) -> Opened:
    """The result of opening a run, if it fits. Raises UsageError otherwise."""
    if (size := _size(opened)) > PAYLOAD:
        text = f"the graph of the run, and the inputs that its conditions and outputs read, have {size:,} bytes"
        hint = f"{_FEWER} Give large inputs to stages, not to `outputs` or `when`."
        raise UsageError(f"{text}; {PAYLOAD:,} are allowed", hint)
    return opened


def bounded(report: NodeReport, node: str) -> NodeReport:
    """The report, or a failure when it is too large."""
    if (size := _size(report)) <= PAYLOAD:
        return report
    text = f"{node}: its state or outputs have {size:,} bytes, and {PAYLOAD:,} are allowed; keep large values in data"
    return NodeReport(problem=Problem(str(FailureClass.USER_ERROR), text, node))


def is_small(report: NodeReport, share: int) -> bool:
    """Returns whether a node is done, and `share` summaries like this one leave half of a payload for the next
    nodes."""
    return report.summary is not None and _size(report.summary) <= PAYLOAD // (2 * share)


def after(before: Mapping[str, Summary], report: NodeReport) -> NodeReport:
    """The report with the summaries of earlier nodes. If it does not fit, the node is dropped, and is found done next
    time."""
    whole = replace(report, before=dict(before))
    return whole if not before or _size(whole) <= PAYLOAD else NodeReport(stopped=True, before=dict(before))


def _size(value: Opened | NodeReport | Graph | Summary) -> int:
    """Bytes of the JSON that the payload converter writes."""
    return len(json.dumps(msgspec.to_builtins(value)))
