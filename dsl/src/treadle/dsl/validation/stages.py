"""Checks the keys of a stage that need or exclude each other, or have no effect."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from pydantic import JsonValue

from ..diagnostics.diagnostics import one_of
from ..graph.graph import InputTarget, Node, StageGraph, StageTarget, inputs_of
from ..graph.partition_kinds import Kinds, grouped_by
from ..model import (
    BarrierStage,
    BroadcastStage,
    LoopStage,
    MapStage,
    Range,
    RangePartitioner,
    ReduceStage,
    Settings,
    ShuffleStage,
    Source,
    Stage,
    WorkStage,
)
from ..units import parse_percentage
from .gangs import check_quorum_of_gang
from .report import Report

MAX_INPUTS = 200
"""Limit of inputs of one shuffle: each becomes a segment that depends on all the others."""


def check_stage(graph: StageGraph, kinds: Kinds, report: Report, node: Node) -> None:
    """Check everything about one stage except its expressions."""
    match node.stage:
        case MapStage():
            _check_map(graph, report, node, node.stage)
        case ShuffleStage():
            _check_shuffle(kinds, report, node, node.stage)
        case ReduceStage():
            _check_reduce(graph, report, node, node.stage)
        case BroadcastStage():
            _check_broadcast(report, node, node.stage)
        case BarrierStage():
            _check_barrier(graph, report, node, node.stage)
        case LoopStage():
            _check_loop(report, node, node.stage)
    if isinstance(node.stage, WorkStage):
        _check_work(report, node, node.stage)


def check_quorums(graph: StageGraph, report: Report) -> None:
    """Check that no other stage reads the source of a barrier with a partial quorum."""
    partial = [node for node in graph.nodes.values() if _is_partial(node.stage)]
    readers: dict[str, list[str]] = {}
    for other in graph.nodes.values() if partial else ():
        for _, item in inputs_of(other.stage):
            if isinstance(target := graph.find(item, other.loops), StageTarget):
                readers.setdefault(target.node.id, []).append(other.id)
    for node in partial:
        for reader in readers.get(str(getattr(node.stage, "input", "")), ()):
            if reader != node.id:
                _refuse_reader(report, node, reader)


def _is_partial(stage: Stage) -> bool:
    return isinstance(stage, BarrierStage) and 0 < parse_percentage(stage.quorum) < 100


def _refuse_reader(report: Report, barrier: Node, reader: str) -> None:
    source = getattr(barrier.stage, "input", "")
    message = f"'{reader}' reads all of '{source}', so the quorum cannot let any of it go"
    hint = f"let '{reader}' read '{barrier.id}', or remove `quorum`"
    report.add("T215", (*barrier.path, "quorum"), message, hint, key=True)


def check_settings(report: Report, path: tuple[str | int, ...], settings: Settings) -> None:
    """Check the bounds of settings, of `defaults` or of a stage."""
    for name in ("timeout", "deadline"):
        if getattr(settings, name) == 0:
            report.add("T015", (*path, name), f"'{name}' must be more than nothing")
    memory = settings.memory
    if memory is not None and not isinstance(memory, int) and memory.max is not None and memory.max < memory.start:
        report.add("T015", (*path, "memory", "max"), "'max' must be at least `start`")
    retry = settings.retry
    if retry is not None and retry.maximum_interval < retry.initial_interval:
        report.add("T015", (*path, "retry"), "'maximumInterval' must be at least `initialInterval`", key=True)


def _check_work(report: Report, node: Node, stage: WorkStage) -> None:
    check_settings(report, node.path, stage)
    if not stage.idempotent:
        _check_idempotent(report, node, stage)
    if stage.output is not None and node.loops:
        message = f"'{node.id}' runs in every iteration of '{node.loops[-1]}', and each would write the same files"
        hint = "carry the data in the loop's state, and write it after the loop"
        report.add("T216", (*node.path, "output"), message, hint, key=True)
    if stage.exchange is not None and (isinstance(stage, MapStage) or getattr(stage, "per", "all") != "all"):
        hint = "set it on the shuffle, broadcast or `per: all` reduce that moves the data, or in `defaults`"
        report.add("T217", (*node.path, "exchange"), f"'{node.id}' moves no data between partitions", hint, key=True)
    if stage.backups and isinstance(stage, MapStage) and stage.gang:
        hint = "remove `backups`: the members of a gang run together, each once"
        report.add("T217", (*node.path, "backups"), f"'{node.id}' is a gang", hint, key=True)
    if isinstance(stage, (MapStage, ReduceStage)) and "context" in stage.with_:
        hint = "give the argument another name"
        report.add("T217", (*node.path, "with", "context"), "`context` is given by treadle itself", hint, key=True)


def _check_idempotent(report: Report, node: Node, stage: WorkStage) -> None:
    path = (*node.path, "idempotent")
    if stage.retry is not None:
        hint = "remove `retry`, or make the function safe to repeat and remove `idempotent: false`"
        report.add("T209", (*node.path, "retry"), "a stage with `idempotent: false` gets one attempt", hint, key=True)
    if stage.backups:
        hint = "remove `backups`, or make the function safe to repeat and remove `idempotent: false`"
        message = "a stage with `idempotent: false` never runs twice"
        report.add("T209", (*node.path, "backups"), message, hint, key=True)
    if isinstance(stage, (ShuffleStage, BroadcastStage)):
        message = f"a {stage.type} may run again at any time, so it cannot be `idempotent: false`"
        report.add("T209", path, message, "act on the outside in a map, and move its result", key=True)


# -- map ---------------------------------------------------------------------------------------------------------


def _check_map(graph: StageGraph, report: Report, node: Node, stage: MapStage) -> None:
    if stage.whole:
        _check_whole(graph, report, node, stage)
    batch = stage.batch
    if batch is not None and batch.max_items is None and batch.max_bytes is None:
        report.add("T206", (*node.path, "batch"), "`batch` needs `maxItems`, `maxBytes` or both", key=True)
    if batch is not None and batch.max_bytes == 0:
        report.add("T015", (*node.path, "batch", "maxBytes"), "'maxBytes' must be more than nothing")
    _check_failures(report, node, stage)


def _check_whole(graph: StageGraph, report: Report, node: Node, stage: MapStage) -> None:
    path = (*node.path, "whole")
    if stage.per != "partition":
        report.add("T205", path, "`whole` gives a partition as one text", "add `per: partition`", key=True)
    elif stage.batch is not None:
        message = "`batch` cuts a partition into records, `whole` keeps it one text"
        report.add("T205", path, message, "keep one of the two", key=True)
    elif isinstance(stage.input, Source):
        if stage.input.format != "text":
            message = f"`whole` reads text files, and these are {stage.input.format}"
            report.add("T205", path, message, "remove it", key=True)
        elif stage.input.table:
            message = "`whole` gives a partition as one text, `table` as a table"
            report.add("T205", path, message, "keep one of the two", key=True)
    elif not _is_dataset_input(graph, node, stage.input):
        report.add("T205", path, "`whole` reads text files, and the input of this map is none", "remove it", key=True)


def _is_dataset_input(graph: StageGraph, node: Node, item: object) -> bool:
    target = graph.find(item, node.loops)
    if target is None:
        return isinstance(item, str)
    return isinstance(target, InputTarget) and target.input.type != "list"


def _check_failures(report: Report, node: Node, stage: MapStage) -> None:
    tolerated = stage.tolerated_failures
    path = (*node.path, "toleratedFailures")
    none = tolerated is None or tolerated == 0 or (isinstance(tolerated, str) and parse_percentage(tolerated) == 0)
    if isinstance(tolerated, str) and parse_percentage(tolerated) > 100:
        report.add("T015", path, "'toleratedFailures' is a share of the records, at most 100%")
    if stage.failed_items is None:
        return
    if none:
        hint = "add `toleratedFailures: 1%`: without it the first failure ends the stage"
        report.add("T210", (*node.path, "failedItems"), "`failedItems` without `toleratedFailures`", hint, key=True)
    if node.loops:
        message = f"'{node.id}' runs in every iteration of '{node.loops[-1]}', and each would write the same files"
        report.add("T216", (*node.path, "failedItems"), message, "return failures as records instead", key=True)


# -- shuffle -----------------------------------------------------------------------------------------------------


def _check_shuffle(kinds: Kinds, report: Report, node: Node, stage: ShuffleStage) -> None:
    kind = kinds.read_by(node)
    if isinstance(stage.by, list):
        if kind == "array":
            message = f"`by` with columns needs rows with names, and '{node.id}' reads arrays"
            report.add("T208", (*node.path, "by"), message, "write a key function: `by: module:function`")
        if len(set(stage.by)) < len(stage.by):
            report.add("T208", (*node.path, "by"), "a column is named twice", "name each once")
    if stage.by == "key" and kind == "table":
        message = "`by: key` takes the first of a pair, and the rows of tables are mappings"
        report.add("T208", (*node.path, "by"), message, "name the columns: `by: [name]`")
    if stage.combine is not None and stage.by != "key":
        hint = "make pairs (key, value) in a map and use `by: key`, or fold in the reduce after the shuffle"
        report.add("T208", (*node.path, "combine"), "`combine` folds pairs, so it needs `by: key`", hint, key=True)
    _check_pairs(report, node, stage)
    _check_several(report, node, stage)
    if isinstance(stage.partitioner, RangePartitioner) and isinstance(stage.partitioner.boundaries, list):
        _check_boundaries(report, node, stage, stage.partitioner.boundaries)


def _check_pairs(report: Report, node: Node, stage: ShuffleStage) -> None:
    """Report sources whose records can never be pairs."""
    for below, item in inputs_of(stage):
        lines = isinstance(item, Source) and item.format == "text" and not item.table
        if stage.by == "key" and (lines or isinstance(item, Range)):
            message = f"`by: key` takes the first of a pair, and {'lines' if lines else 'whole numbers'} are no pairs"
            hint = "make pairs (key, value) in a map, or use a key function: `by: module:function`"
            report.add("T208", (*node.path, *below), message, hint)


def _check_several(report: Report, node: Node, stage: ShuffleStage) -> None:
    if isinstance(stage.input, list) and len(stage.input) > MAX_INPUTS:
        message = f"a shuffle reads at most {MAX_INPUTS} inputs, here are {len(stage.input):,}"
        report.add("T015", (*node.path, "input"), message, "read many files with one wildcard in a `uri`", key=True)
    seen: set[str] = set()
    for below, item in inputs_of(stage):
        if isinstance(item, str):
            if item in seen:
                hint = "make a second stage that reads the same data"
                report.add("T208", (*node.path, *below), f"'{item}' is given twice", hint)
            seen.add(item)


def _check_boundaries(report: Report, node: Node, stage: ShuffleStage, boundaries: list[JsonValue]) -> None:
    path = (*node.path, "partitioner", "boundaries")
    for index, key in enumerate(boundaries):
        if isinstance(key, (list, dict)):
            message = "a boundary written here must be a number, a text, true, false or null"
            report.add("T207", (*path, index), message, "compute other keys in a stage and broadcast them")
            return
    ranks = [_rank(key) for key in boundaries]
    for index, (before, after) in enumerate(pairwise(ranks)):
        if after < before:
            report.add("T207", (*path, index + 1), "boundaries must ascend", "sort them: numbers come before text")
            return
    if isinstance(stage.partitions, int) and len(boundaries) != stage.partitions - 1:
        message = f"{stage.partitions} partitions need {stage.partitions - 1} boundaries, here are {len(boundaries)}"
        report.add("T207", path, message, f"write `partitions: {len(boundaries) + 1}`")
    elif stage.partitions is None:
        hint = f"write `partitions: {len(boundaries) + 1}` on the shuffle"
        report.add("T207", path, "with written boundaries the number of partitions must be written too", hint)


def _rank(key: JsonValue) -> tuple[int, float, str]:
    if key is None:
        return 0, 0.0, ""
    return (2, 0.0, key) if isinstance(key, str) else (1, key, "")  # type: ignore[return-value]


# -- reduce ------------------------------------------------------------------------------------------------------


def _check_reduce(graph: StageGraph, report: Report, node: Node, stage: ReduceStage) -> None:
    if (stage.uses is None) == (stage.combine is None):
        has = "both `uses` and `combine`" if stage.uses else "neither `uses` nor `combine`"
        hint = "`combine: f(a, b)` folds two values into one; `uses: g(values)` sees all values of a group"
        report.add("T201", node.path, f"'{node.id}' has {has}; a reduce has one of them", hint, key=True)
        return
    for code, key, message, hint in _reduce_complaints(stage):
        report.add(code, (*node.path, key), message, hint, key=True)
    if stage.per == "key":
        _check_grouped(graph, report, node, stage)
    _check_metrics(report, node, stage)


def _reduce_complaints(stage: ReduceStage) -> Iterator[tuple[str, str, str, str]]:
    tree = "only `combine` with `per: all` folds as a tree"
    if stage.fan_in is not None and (stage.combine is None or stage.per != "all"):
        yield "T202", "fanIn", tree, "remove `fanIn`"
    if stage.fan_in == 1:
        yield "T202", "fanIn", "a tree whose nodes join one value never ends", "write 2 or more"
    if stage.uses is not None and stage.has_initial:
        yield "T203", "initial", "`initial` is the first operand of `combine`, and there is none", "handle it in `uses`"
    if stage.uses is not None and stage.finish is not None:
        yield "T203", "finish", "`finish` follows `combine`, and there is none", "do it at the end of `uses`"
    if stage.with_ and stage.combine is not None and stage.finish is None:
        yield "T217", "with", "`combine` takes two values and no arguments", "give them to `finish`, or use `uses`"
    if stage.metrics and stage.combine is not None and stage.finish is None:
        hint = "return `Result(value, metrics=...)` from `finish` or `uses`"
        yield "T217", "metrics", "`combine` cannot report metrics", hint


def _check_grouped(graph: StageGraph, report: Report, node: Node, stage: ReduceStage) -> None:
    found = grouped_by(graph, stage.input, node.loops)
    path = (*node.path, "input")
    if found is None:
        if not isinstance(stage.input, str) or graph.find(stage.input, node.loops):
            hint = "put a shuffle before it, or use `per: partition` or `per: all`"
            report.add("T204", path, "`per: key` needs an input that a shuffle has grouped by key", hint)
        return
    _, shuffle = found
    inputs = shuffle.input if isinstance(shuffle.input, list) else []
    if len(inputs) > 1 and not all(isinstance(item, str) for item in inputs):
        hint = "give files and literals a map of their own, and name it"
        report.add("T204", path, "values arrive by the names of the shuffle's inputs, and one has no name", hint)
    if len(inputs) > 1 and stage.combine is not None:
        hint = "use `uses`: it gets `{input: values}`"
        report.add("T204", path, "`combine` cannot tell the shuffle's inputs apart", hint)


def _check_metrics(report: Report, node: Node, stage: ReduceStage) -> None:
    typed = ("integer", "number", "string", "boolean")
    aggregated = ("sum", "min", "max")
    wanted = typed if stage.per == "all" else aggregated
    for name, declared in stage.metrics.items():
        if declared not in wanted:
            reason = (
                "has one value, so say its type"
                if stage.per == "all"
                else "has a value per partition, so say how they join"
            )
            message = f"a metric of `per: {stage.per}` {reason}: {one_of(wanted)}"
            report.add("T214", (*node.path, "metrics", name), message)


# -- broadcast, barrier, loop ------------------------------------------------------------------------------------


def _check_broadcast(report: Report, node: Node, stage: BroadcastStage) -> None:
    if stage.output is not None:
        hint = "give the output to the stage it reads"
        report.add("T217", (*node.path, "output"), "a broadcast is one value and has no parts to write", hint, key=True)
    if stage.limit == 0:
        report.add("T015", (*node.path, "limit"), "'limit' must be more than nothing")


def _check_barrier(graph: StageGraph, report: Report, node: Node, stage: BarrierStage) -> None:
    path = (*node.path, "input")
    target = graph.find(stage.input, node.loops)
    if target is None:
        return
    if not isinstance(target, StageTarget):
        report.add("T106", path, f"there is nothing to wait for in '{stage.input}'", "a barrier waits for a stage")
        return
    share = parse_percentage(stage.quorum)
    if not 0 < share <= 100:
        report.add("T215", (*node.path, "quorum"), "a quorum is more than 0% and at most 100%")
    elif share < 100:
        check_quorum_of_gang(report, node, target.node)


def _check_loop(report: Report, node: Node, stage: LoopStage) -> None:
    if not stage.stages:
        report.add("T015", (*node.path, "stages"), f"the loop '{node.id}' has no stages", key=True)
    if stage.until is None and "on_exhausted" in stage.model_fields_set:
        hint = "add `until`, or remove it: a loop without `until` always ends after `maxIterations`"
        report.add("T217", (*node.path, "onExhausted"), "without `until` a loop is never exhausted", hint, key=True)
    for key, values in (("state", stage.state), ("next", stage.next)):
        for name, value in values.items():
            if isinstance(value, (list, dict)) or (value is None and key == "state"):
                path = (*node.path, key, name)
                report.add("T013", path, "a state is a dataset or a scalar value", "for data, name a stage")
