"""Runs all checks of a document before it runs."""

from __future__ import annotations

from ..diagnostics.diagnostics import Diagnostic, for_list, has_errors, listed
from ..document.document import Document
from ..graph.graph import Node, StageGraph, all_references, inputs_of
from ..graph.partition_kinds import Kinds
from ..model import (
    BarrierStage,
    BroadcastStage,
    Items,
    LoopStage,
    MapStage,
    Range,
    RangePartitioner,
    ReduceStage,
    ShuffleStage,
    Source,
    Spec,
    WorkflowStage,
    WorkStage,
)
from ..templates import OPEN
from .caching import check_caching
from .expressions import OUTPUT_ROOTS, PLAN_ROOTS, RUN_ROOTS, Expressions, ExpressionSite
from .formats import check_files, check_places
from .gangs import check_gangs
from .inputs import check_inputs
from .objects import check_objects, check_unused_objects
from .references import check_cycles, check_ids, check_loops, check_references, edges
from .report import Report
from .stages import check_quorums, check_settings, check_stage
from .subworkflows import check_subworkflow
from .triggers import check_triggers


def validate(document: Document) -> list[Diagnostic]:
    """Return all findings, in the order of the text, then those in sub-workflows; only load errors if it
    did not load.
    """
    if document.spec is None:
        return listed(document.problems)
    report = Report(document, list(document.problems))
    graph = StageGraph(document.spec)
    check_ids(graph, report)
    check_references(graph, report)
    check_loops(graph, report)
    check_cycles(graph, report)
    check_inputs(document.spec, report)
    check_settings(report, ("defaults",), document.spec.defaults)
    kinds = Kinds(graph)
    for node in graph.nodes.values():
        check_stage(graph, kinds, report, node)
        check_files(kinds, report, node)
    check_quorums(graph, report)
    check_gangs(graph, report)
    check_places(graph, report)
    check_caching(graph, report)
    check_objects(graph, report)
    expressions = Expressions(graph, report)
    _check_expressions(graph, expressions)
    check_triggers(document.spec, expressions, report)
    if not has_errors(report.found):
        _check_unused(graph, report, expressions)
    below = (found for child in document.children.values() for found in validate(child))
    return list(dict.fromkeys([*report.listed(), *below]))


# -- expressions ---------------------------------------------------------------------------------


def _check_expressions(graph: StageGraph, expressions: Expressions) -> None:
    spec = graph.spec
    for node in graph.nodes.values():
        _stage(expressions, node)
    expressions.count(_plan("defaults", "maxConcurrency"), spec.defaults.max_concurrency)
    for name, declared in spec.objects.items():
        for argument, value in declared.with_.items():
            expressions.value(_plan("objects", name, "with", argument), value)
    for name, value in spec.outputs.items():
        expressions.value(ExpressionSite(("outputs", name), OUTPUT_ROOTS, "after the run"), value)


def _plan(*path: str | int) -> ExpressionSite:
    return ExpressionSite(path, PLAN_ROOTS, "when the run is planned")


def _stage(expressions: Expressions, node: Node) -> None:
    stage = node.stage
    run = ExpressionSite(node.path, RUN_ROOTS, "while the run goes on", node.loops)
    if stage.when is not None:
        expressions.condition(run.below("when"), stage.when)
    for below, item in inputs_of(stage):
        _input(expressions, _plan(*node.path, *below), item)
    if isinstance(stage, LoopStage):
        _loop(expressions, node, stage)
    elif isinstance(stage, WorkflowStage):
        check_subworkflow(expressions, node, stage)
    elif not isinstance(stage, BarrierStage):
        _work(expressions, node, stage)


def _input(expressions: Expressions, site: ExpressionSite, item: str | Source | Items | Range) -> None:
    if isinstance(item, Source):
        expressions.uri(site.below("uri"), item.uri)
        expressions.count(site.below("recordBytes"), item.record_bytes)
    elif isinstance(item, Items):
        only = item.items[0] if len(item.items) == 1 else None
        named = for_list(only) if isinstance(only, str) else ""
        reason = named or "records are literal; give values through `with`"
        expressions.literal((*site.path, "items"), item.items, reason)
        expressions.count(site.below("partitions"), item.partitions)
    elif isinstance(item, Range):
        expressions.count(site.below("range"), item.range)
        expressions.count(site.below("partitions"), item.partitions)


def _work(expressions: Expressions, node: Node, stage: WorkStage) -> None:
    plan = _plan(*node.path)
    expressions.count(plan.below("maxConcurrency"), stage.max_concurrency)
    if stage.output is not None:
        expressions.uri(plan.below("output", "uri"), stage.output.uri)
    if isinstance(stage, MapStage):
        if stage.batch is not None:
            expressions.count(plan.below("batch", "maxItems"), stage.batch.max_items)
        if stage.failed_items is not None:
            expressions.uri(plan.below("failedItems", "uri"), stage.failed_items.uri)
    if isinstance(stage, ShuffleStage):
        expressions.count(plan.below("partitions"), stage.partitions)
        if isinstance(stage.partitioner, RangePartitioner):
            path = (*node.path, "partitioner", "boundaries")
            expressions.literal(path, stage.partitioner.boundaries, "compute boundaries in a stage and broadcast them")
    if isinstance(stage, ReduceStage):
        expressions.count(plan.below("fanIn"), stage.fan_in)
        expressions.literal((*node.path, "initial"), stage.initial, "give values to `finish` through `with`")
    if isinstance(stage, (MapStage, ReduceStage)):
        site = ExpressionSite((*node.path, "with"), RUN_ROOTS, "while the run goes on", node.loops, whole_values=True)
        for name, value in stage.with_.items():
            expressions.value(site.below(name), value)


def _loop(expressions: Expressions, node: Node, stage: LoopStage) -> None:
    expressions.count(_plan(*node.path, "maxIterations"), stage.max_iterations)
    outer = ExpressionSite(node.path, RUN_ROOTS, "before the loop", node.loops)
    inner = ExpressionSite(node.path, RUN_ROOTS, "after an iteration", (*node.loops, node.id))
    if stage.until is not None:
        expressions.condition(inner.below("until"), stage.until)
    for site, key, values in ((outer, "state", stage.state), (inner, "next", stage.next)):
        for name, value in values.items():
            if isinstance(value, str) and OPEN in value:
                expressions.value(site.below(key, name), value)


# -- unused names -------------------------------------------------------------------------------------------


def _check_unused(graph: StageGraph, report: Report, expressions: Expressions) -> None:
    spec: Spec = graph.spec
    check_unused_objects(spec, graph, report)
    named = {reference for node in graph.nodes.values() for _, reference, _ in all_references(node)}
    for name in spec.inputs:
        if name not in expressions.used_inputs and f"inputs.{name}" not in named:
            report.add("T601", ("inputs", name), f"nothing uses the input '{name}'", "remove it", key=True)
    for index, name in enumerate(spec.secrets):
        if name not in expressions.used_secrets:
            report.add("T603", ("secrets", index), f"nothing uses the secret '{name}'", "remove it")
    read = {edge.source for edge in edges(graph)} | {name.split(".")[0] for name in named}
    for node in graph.nodes.values():
        moves = isinstance(node.stage, (ShuffleStage, BroadcastStage, BarrierStage))
        if moves and node.id not in read and getattr(node.stage, "output", None) is None:
            message = f"nothing reads '{node.id}', and a {node.stage.type} alone has no effect"
            report.add("T602", node.path, message, "remove it", key=True)
