"""What crosses Temporal has to fit into a payload; the server would be asked again for ever to take what does not."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

from treadle.primitives.errors import FailureClass, UsageError

from ..plan.plan import Graph
from ..scheduler.instructions import Problem
from . import messages
from .messages import PAYLOAD, NodeReport, Opened

_FEWER = "Put stages into workflows of their own (`type: workflow`), or into a loop."


def check_graph(graph: Graph) -> None:
    """Raises UsageError for a workflow of too many stages."""
    size = len(json.dumps(messages.pack(messages.slim(graph))))  # as a text in a document
    if size > PAYLOAD:
        text = f"the workflow is too large: what Temporal must know of its {len(graph.nodes):,} parts is {size:,} bytes"
        raise UsageError(f"{text}, and {PAYLOAD:,} are allowed", _FEWER)


def check_opened(opened: Opened) -> Opened:
    """What opening a run gives, if it fits. Raises UsageError."""
    if (size := _size(opened)) > PAYLOAD:
        text = f"the graph of the run, and the inputs that its conditions and outputs read, have {size:,} bytes"
        hint = f"{_FEWER} Give large inputs to stages, not to `outputs` or `when`."
        raise UsageError(f"{text}; {PAYLOAD:,} are allowed", hint)
    return opened


def bounded(report: NodeReport, node: str) -> NodeReport:
    """The report, or that it is too large."""
    if (size := _size(report)) <= PAYLOAD:
        return report
    text = f"{node}: its state or outputs have {size:,} bytes, and {PAYLOAD:,} are allowed; keep large values in data"
    return NodeReport(problem=messages.pack(Problem(str(FailureClass.USER_ERROR), text, node)))


def is_small(report: NodeReport, share: int) -> bool:
    """Whether something was done, and so many summaries like this one leave half of a payload to what is done next."""
    return bool(report.summary) and len(json.dumps(report.summary)) <= PAYLOAD // (2 * share)  # as a text in a document


def after(before: Mapping[str, str], report: NodeReport) -> NodeReport:
    """The report, with what was done before it; if both do not fit, its node is left: it is found done next time."""
    whole = replace(report, before=dict(before))
    return whole if not before or _size(whole) <= PAYLOAD else NodeReport(stopped=True, before=dict(before))


def _size(value: Opened | NodeReport) -> int:
    from temporalio.converter import DataConverter

    return sum(payload.ByteSize() for payload in DataConverter.default.payload_converter.to_payloads([value]))
