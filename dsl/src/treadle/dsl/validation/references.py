"""Checks ids, references and order: every name resolves, is visible, and no stage waits for itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..diagnostics.diagnostics import Path, a, did_you_mean, one_of
from ..graph.graph import (
    RESERVED,
    InputTarget,
    Node,
    ReferenceProblem,
    StageGraph,
    StageTarget,
    StateTarget,
    Target,
    all_references,
)
from ..model import BroadcastStage, LoopStage, MapStage, ReduceStage, WorkflowStage
from ..templates import condition_paths, is_reference, mentioned
from .report import Report


def check_ids(graph: StageGraph, report: Report) -> None:
    """Check that ids are unique across nesting, and not reserved."""
    for node in graph.repeated:
        first = report.document.span(graph.nodes[node.id].path, key=True)
        where = f" (line {first.line})" if first.line else ""
        message = f"there is already a stage '{node.id}'{where}"
        report.add("T104", node.path, message, "ids are unique across all loops of a workflow", key=True)
    for node in graph.nodes.values():
        if node.id in RESERVED:
            message = f"'{node.id}' cannot be the id of a stage"
            report.add("T105", node.path, message, f"it begins references such as `{node.id}.x`", key=True)


def check_references(graph: StageGraph, report: Report) -> None:
    """Check that every bare reference leads to data (or, for boundaries, to a broadcast)."""
    for node in graph.nodes.values():
        for path, reference, loops in all_references(node):
            _check_data(graph, report, path, reference, loops)
        _check_needs(graph, report, node)


def _check_data(graph: StageGraph, report: Report, path: Path, reference: str, loops: tuple[str, ...]) -> None:
    try:
        target = graph.resolve(reference, loops)
    except ReferenceProblem as problem:
        report.add(problem.code, path, problem.message, _or_text(path, reference) or problem.hint)
        return
    if path[-1] == "boundaries":
        _check_boundaries(report, path, reference, target)
    elif complaint := _not_data(target):
        report.add("T106", path, *complaint)


def _or_text(path: Path, reference: str) -> str:
    """Return the hint for a state that was perhaps meant to be a string, since a bare word names a stage."""
    if path[-2] in ("state", "next") and "." not in reference:
        return f"name a stage, or write the text as \"${{{{ '{reference}' }}}}\""
    return ""


def _not_data(target: Target) -> tuple[str, str] | None:
    match target:
        case StageTarget(Node(name, LoopStage(state=state))):
            hint = f"write {one_of(f'{name}.state.{each}' for each in state)}" if state else "it has no state"
            return f"'{name}' is a loop, its results are its state", hint
        case StageTarget(Node(name, WorkflowStage())):
            hint = f"let it write files, and hand their place on: `${{{{ stages.{name}.outputs.NAME }}}}`"
            return f"'{name}' is a workflow, which gives values and no dataset", hint
        case StageTarget(Node(name, BroadcastStage(input=source))):
            inner = f"`{source}`" if isinstance(source, str) else "what it broadcasts"
            return f"'{name}' is a broadcast, a value and not a dataset", f"read {inner}, or use it inside `with`"
        case InputTarget(name, declared) if declared.type not in ("dataset", "list"):
            hint = f'for files write `input: {{uri: "${{{{ inputs.{name} }}}}", format: ...}}`'
            named = declared.type in ("uri", "string")
            return f"the input '{name}' is {a(declared.type)}, not a dataset", hint if named else ""
        case StateTarget(Node(_, LoopStage(state=state)), name) if not is_reference(state[name]):
            return f"the state '{name}' is a value, not a dataset", f"write `${{{{ state.{name} }}}}` inside `with`"
    return None


def _check_boundaries(report: Report, path: Path, reference: str, target: Target) -> None:
    if not (isinstance(target, StageTarget) and isinstance(target.node.stage, BroadcastStage)):
        hint = f"add a stage `{{type: broadcast, input: {reference}}}` and name that"
        report.add("T207", path, f"boundaries come from a broadcast, '{reference}' is none", hint)


def _check_needs(graph: StageGraph, report: Report, node: Node) -> None:
    for index, name in enumerate(node.stage.needs):
        path: Path = (*node.path, "needs", index)
        if "." in name:
            first = name.partition(".")[0]
            hint = f"write `{first}`" if first in graph.nodes else ""
            report.add("T106", path, f"`needs` names stages, '{name}' is none", hint)
            continue
        if name in node.loops:
            report.add("T106", path, f"'{node.id}' is inside the loop '{name}' and cannot wait for its end")
            continue
        try:
            graph.stage(name, node.loops)
        except ReferenceProblem as problem:
            report.add(problem.code, path, problem.message, problem.hint)


def check_loops(graph: StageGraph, report: Report) -> None:
    """Check that `next` sets only states of the loop, each to a dataset or a value as before."""
    for node in graph.nodes.values():
        if not isinstance(node.stage, LoopStage):
            continue
        for name, value in node.stage.next.items():
            path: Path = (*node.path, "next", name)
            if name not in node.stage.state:
                hint = did_you_mean(name, node.stage.state) or f"declare it: `state: {{{name}: ...}}`"
                report.add("T107", path, f"the loop '{node.id}' has no state '{name}'", hint, key=True)
            elif is_reference(value) != is_reference(node.stage.state[name]):
                was, now = ("dataset", "value") if is_reference(node.stage.state[name]) else ("value", "dataset")
                hint = "name a stage" if was == "dataset" else "write `${{ stages.X.metrics.NAME }}`"
                report.add("T107", path, f"the state '{name}' begins as a {was} and cannot become a {now}", hint)


# -- order -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Dependency:
    """`source` must end before `consumer` starts; `path` is the place in the document."""

    source: str
    consumer: str
    path: Path


def edges(graph: StageGraph) -> Iterator[Dependency]:
    """Yield the edges between sibling stages; unresolved names are left out."""
    for node in graph.nodes.values():
        for path, target in _sources(graph, node):
            pair = graph.sibling(node, target)
            if pair is not None:
                yield Dependency(*pair, path)


def _sources(graph: StageGraph, node: Node) -> Iterator[tuple[Path, Node]]:
    stage, inner = node.stage, (*node.loops, node.id)
    for path, reference, loops in all_references(node):
        yield from _target(graph, path, reference, loops)
    for index, name in enumerate(stage.needs):
        yield from _target(graph, (*node.path, "needs", index), name, node.loops)
    if isinstance(stage, LoopStage):
        yield from _values(graph, (*node.path, "until"), condition_paths(stage.until), inner)
        yield from _values(graph, (*node.path, "next"), mentioned(stage.next), inner)
        yield from _values(graph, (*node.path, "state"), mentioned(stage.state), node.loops)
    elif isinstance(stage, (MapStage, ReduceStage, WorkflowStage)):
        yield from _values(graph, (*node.path, "with"), mentioned(stage.with_), node.loops)
    yield from _values(graph, (*node.path, "when"), condition_paths(stage.when), node.loops)


def _target(graph: StageGraph, path: Path, reference: str, loops: tuple[str, ...]) -> Iterator[tuple[Path, Node]]:
    target = graph.find(reference, loops)
    node = graph.node_of(target) if target is not None else None
    if node is not None:
        yield path, node


def _values(
    graph: StageGraph, path: Path, names: set[tuple[str, ...]], loops: tuple[str, ...]
) -> Iterator[tuple[Path, Node]]:
    for name in sorted(names):
        if name[0] == "stages" and len(name) > 1:
            yield from _target(graph, path, name[1], loops)


def check_cycles(graph: StageGraph, report: Report) -> None:
    """Report every cycle of waiting once, with its stages in order."""
    waits: dict[str, dict[str, Path]] = {}
    for edge in edges(graph):
        waits.setdefault(edge.consumer, {}).setdefault(edge.source, edge.path)
    done: set[str] = set()
    for start in waits:
        cycle = _cycle_from(start, waits, done)
        if cycle:
            path = waits[cycle[0]][cycle[1]] if len(cycle) > 1 else waits[cycle[0]][cycle[0]]
            shown = " → ".join([*cycle, cycle[0]])
            hint = "carry a value from one iteration to the next with a loop" if len(cycle) > 1 else ""
            report.add("T103", path, f"stages wait for each other: {shown}", hint)


def _cycle_from(start: str, waits: dict[str, dict[str, Path]], done: set[str]) -> list[str]:
    """Depth first, without recursion; names in `done` are on no unreported cycle."""
    trail: list[str] = []
    stack = [(start, False)]
    while stack:
        name, leaving = stack.pop()
        if leaving:
            trail.pop()
        elif name in trail:
            done.update(trail)
            return trail[trail.index(name) :]
        elif name not in done:
            done.add(name)
            trail.append(name)
            stack += [(name, True), *((source, False) for source in waits.get(name, {}))]
    return []
