"""`gang`: exactly so many partitions, run together or not at all."""

from __future__ import annotations

from treadle.primitives.partitioning import DEFAULT_PARTITIONS

from ..graph.graph import Graph, Node, StageTarget, inputs_of
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


def check_gang(graph: Graph, report: Report, node: Node, stage: MapStage) -> None:
    """What a document alone shows; the rest is refused by the plan, or when the data is there."""
    if stage.gang is None:
        return
    _check_width(graph, report, node, stage, stage.gang)
    _check_concurrency(graph, report, node, stage, stage.gang)
    if stage.tolerated_failures is not None:
        message = (
            f"the partitions of the gang '{node.id}' stand or fall together, so none of their failures can be set aside"
        )
        hint = "catch the error in the function and return it as a record, or remove `gang`"
        report.add("T221", (*node.path, "toleratedFailures"), message, hint, key=True)


def check_quorum_of_gang(report: Report, barrier: Node, source: Node) -> None:
    """A barrier with a quorum below 100 % over `source`."""
    if isinstance(source.stage, MapStage) and source.stage.gang is not None:
        message = f"'{source.id}' is a gang, whose partitions are committed together or not at all"
        report.add("T215", (*barrier.path, "quorum"), message, "remove `quorum`", key=True)


def _check_width(graph: Graph, report: Report, node: Node, stage: MapStage, gang: int) -> None:
    width = None if stage.batch is not None else _input_width(graph, node, stage.input, frozenset({node.id}))
    if width is None or width == gang:
        return
    count = f"{width} partition{'s' * (width != 1)}"
    message = f"the input of '{node.id}' has {count}, and `gang: {gang}` needs exactly {gang}"
    here = isinstance(stage.input, (Items, Range))
    hint = f"write `partitions: {gang}` {'in the input' if here else 'where the partitions are made'}"
    report.add("T220", (*node.path, "gang"), message, f"{hint}, or `gang: {width}`")


def _check_concurrency(graph: Graph, report: Report, node: Node, stage: MapStage, gang: int) -> None:
    given = stage.max_concurrency
    path = (*node.path, "maxConcurrency") if given is not None else ("defaults", "maxConcurrency")
    most = graph.spec.defaults.max_concurrency if given is None else given
    if isinstance(most, int) and most < gang:
        message = f"`gang: {gang}` of '{node.id}' needs {gang} slots at once, and only {most} may be used"
        report.add("T221", path, message, f"write `maxConcurrency: {gang}` or more on '{node.id}', or remove it")


# -- how many partitions a stage gives, where the document says it; None: files, data or a state decide ----------


def _width(graph: Graph, node: Node, seen: frozenset[str]) -> int | None:
    stage, seen = node.stage, seen | {node.id}
    match stage:
        case MapStage(batch=None) | BarrierStage():
            return _input_width(graph, node, stage.input, seen)
        case ReduceStage(per="all") | BroadcastStage():
            return 1
        case ReduceStage():
            return _input_width(graph, node, stage.input, seen)
        case ShuffleStage(partitions=int(given)):
            return given
        case ShuffleStage(partitions=None):
            widths = [_input_width(graph, node, item, seen) for _, item in inputs_of(stage)]
            known = [width for width in widths if width is not None]
            return min(sum(known), DEFAULT_PARTITIONS) if len(known) == len(widths) else None
        case MapStage() | ShuffleStage() | LoopStage() | WorkflowStage():
            return None


def _input_width(graph: Graph, node: Node, item: StageInput, seen: frozenset[str]) -> int | None:
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
    if isinstance(target, StageTarget) and target.node.id not in seen:
        return _width(graph, target.node, seen)
    return None
