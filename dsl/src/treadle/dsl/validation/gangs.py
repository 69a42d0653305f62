"""Checks `gang`: exactly this many partitions, run together or not at all."""

from __future__ import annotations

from collections.abc import Mapping

from treadle.primitives.shuffling.partitioning import DEFAULT_PARTITIONS

from ..graph.graph import Node, StageGraph, StageTarget, inputs_of, references_of
from ..graph.requirements import needs_first, stage_name
from ..model import (
    BarrierStage,
    BroadcastStage,
    Items,
    LoopStage,
    MapStage,
    Range,
    ReduceStage,
    ShuffleStage,
    Source,
    StageInput,
    WorkflowStage,
)
from .report import Report


def check_gangs(graph: StageGraph, report: Report) -> None:
    """Check each gang as far as the document shows; the planner, or the data at run time, shows the rest."""
    gangs = [(node, one, one.gang) for node in graph.nodes.values() if isinstance(one := node.stage, MapStage)]
    widths = _widths(graph) if any(gang for *_, gang in gangs) else {}
    for node, stage, gang in gangs:
        if gang is not None:
            if stage.batch is None:
                _check_width(report, node, stage, gang, _input_width(graph, node, stage.input, widths))
            _check_concurrency(graph, report, node, stage, gang)
            _check_failures(report, node, stage)


def _check_failures(report: Report, node: Node, stage: MapStage) -> None:
    if stage.tolerated_failures is not None:
        message = (
            f"the partitions of the gang '{node.id}' stand or fall together, so none of their failures can be set aside"
        )
        hint = "catch the error in the function and return it as a record, or remove `gang`"
        report.add("T221", (*node.path, "toleratedFailures"), message, hint, key=True)


def check_quorum_of_gang(report: Report, barrier: Node, source: Node) -> None:
    """Check a barrier with a quorum below 100 % over `source`."""
    if isinstance(source.stage, MapStage) and source.stage.gang is not None:
        message = f"'{source.id}' is a gang, whose partitions are committed together or not at all"
        report.add("T215", (*barrier.path, "quorum"), message, "remove `quorum`", key=True)


def _check_width(report: Report, node: Node, stage: MapStage, gang: int, width: int | None) -> None:
    if width is None or width == gang:
        return
    count = f"{width} partition{'s' * (width != 1)}"
    message = f"the input of '{node.id}' has {count}, and `gang: {gang}` needs exactly {gang}"
    here = isinstance(stage.input, (Items, Range))
    hint = f"write `partitions: {gang}` {'in the input' if here else 'where the partitions are made'}"
    report.add("T220", (*node.path, "gang"), message, f"{hint}, or `gang: {width}`")


def _check_concurrency(graph: StageGraph, report: Report, node: Node, stage: MapStage, gang: int) -> None:
    given = stage.max_concurrency
    path = (*node.path, "maxConcurrency") if given is not None else ("defaults", "maxConcurrency")
    most = graph.spec.defaults.max_concurrency if given is None else given
    if isinstance(most, int) and most < gang:
        message = f"`gang: {gang}` of '{node.id}' needs {gang} slots at once, and only {most} may be used"
        report.add("T221", path, message, f"write `maxConcurrency: {gang}` or more on '{node.id}', or remove it")


# -- number of partitions of a stage, where the document defines it; None: files, data or a state decide ----------


def _widths(graph: StageGraph) -> dict[str, int | None]:
    """Return the number of partitions by stage; a stage is missing at its first use only in a cycle."""
    reads = {name: [one for _, one in references_of(node.stage)] for name, node in graph.nodes.items()}
    found: dict[str, int | None] = {}
    for name in needs_first({name: list(filter(None, map(stage_name, given))) for name, given in reads.items()}):
        found[name] = _width(graph, graph.nodes[name], found)
    return found


def _width(graph: StageGraph, node: Node, known: Mapping[str, int | None]) -> int | None:
    stage = node.stage
    match stage:
        case ReduceStage(per="all") | BroadcastStage():
            return 1
        case MapStage(batch=None) | BarrierStage() | ReduceStage():
            return _input_width(graph, node, stage.input, known)
        case ShuffleStage(partitions=int(given)):
            return given
        case ShuffleStage(partitions=None):
            widths = [_input_width(graph, node, item, known) for _, item in inputs_of(stage)]
            return min(sum(filter(None, widths)), DEFAULT_PARTITIONS) if None not in widths else None
        case MapStage() | ShuffleStage() | LoopStage() | WorkflowStage():
            return None


def _input_width(graph: StageGraph, node: Node, item: StageInput, known: Mapping[str, int | None]) -> int | None:
    match item:
        case Source():
            return None
        case Items(partitions=None):
            return max(1, min(len(item.items), DEFAULT_PARTITIONS))
        case Range(partitions=None):
            return max(1, min(item.range, DEFAULT_PARTITIONS)) if isinstance(item.range, int) else None
        case Items() | Range():
            return item.partitions if isinstance(item.partitions, int) else None
    target = graph.find(item, node.loops)
    return known.get(target.node.id) if isinstance(target, StageTarget) else None
