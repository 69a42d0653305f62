"""Checks `objects`: each is declared and used, and all users of an object that a stage changes come in one order."""

from __future__ import annotations

from collections.abc import Iterator

from ..diagnostics.diagnostics import Path, did_you_mean
from ..graph.graph import Node, StageGraph
from ..graph.objects import merged_in, used_objects
from ..graph.requirements import StageMap, needs_first, skipped_where
from ..model import LoopStage, ReduceStage, Spec
from .references import edges
from .report import Report


def check_objects(graph: StageGraph, report: Report) -> None:
    """Check the declarations, and each use of an object."""
    users: dict[str, list[tuple[Node, bool]]] = {}
    for name, declared in graph.spec.objects.items():
        if (declared.type is None) == (declared.uses is None):
            report.add("T224", ("objects", name), f"the object '{name}' needs either `type` or `uses`", key=True)
    for node in graph.nodes.values():
        for name, merges in used_objects(node.stage).items():
            _check_use(graph.spec, report, node, name)
            users.setdefault(name, []).append((node, merges))
    if users:
        order = _Order(graph)
        for name, found in users.items():
            _check_order(order, report, name, found)
        _check_loops(graph.spec.stages, report, ("stages",))


def check_unused_objects(spec: Spec, graph: StageGraph, report: Report) -> None:
    used = {name for node in graph.nodes.values() for name in used_objects(node.stage)}
    for name in spec.objects:
        if name not in used:
            hint = f"write `objects: [{name}]` in a stage, or remove it"
            report.add("T607", ("objects", name), f"no stage uses the object '{name}'", hint, key=True)


def _check_use(spec: Spec, report: Report, node: Node, name: str) -> None:
    given = getattr(node.stage, "objects", [])
    path: Path = (*node.path, "objects", name if isinstance(given, dict) else given.index(name))
    if name not in spec.objects:
        hint = did_you_mean(name, spec.objects) or f"declare it: `objects: {{{name}: {{type: counter}}}}`"
        report.add("T101", path, f"there is no object '{name}'", hint)
    if isinstance(node.stage, ReduceStage) and not (node.stage.uses or node.stage.finish):
        message = f"'{node.id}' has only `combine`, which is called without `context` and cannot use an object"
        report.add("T217", path, message, "use the object in `finish`, or in a map")


# -- order ----------------------------------------------------------------------------------------------------


class _Order:
    """Which stage is over before which other begins, for stages at any depth."""

    def __init__(self, graph: StageGraph) -> None:
        needs: dict[str, list[str]] = {name: [] for name in graph.nodes}
        for edge in edges(graph):
            needs[edge.consumer].append(edge.source)
        self._place = {name: place for place, name in enumerate(needs_first(needs))}
        self._above: dict[str, int] = {}
        """Stage -> a bit for the place of each sibling before it."""
        for name in self._place:
            above = 0
            for need in needs[name]:
                above |= self._above.get(need, 0) | 1 << self._place[need]
            self._above[name] = above

    def key(self, node: Node) -> tuple[int, ...]:
        """Sorts stages so that a stage comes after all stages before it."""
        return tuple(self._place[name] for name in (*node.loops, node.id))

    def siblings(self, first: Node, second: Node) -> tuple[str, str]:
        """Return the two stages, or the loops around them, that are siblings."""
        one, other = (*first.loops, first.id), (*second.loops, second.id)
        return next(pair for pair in zip(one, other, strict=False) if pair[0] != pair[1])

    def is_before(self, first: Node, second: Node) -> bool:
        one, other = self.siblings(first, second)
        return bool(self._above[other] >> self._place[one] & 1)


def _check_order(order: _Order, report: Report, name: str, users: list[tuple[Node, bool]]) -> None:
    last: Node | None = None
    waiting: list[Node] = []
    for node, merges in sorted(users, key=lambda user: order.key(user[0])):
        before = [*waiting, *([last] if last else [])] if merges else [last] if last else []
        for other in before:
            if not order.is_before(other, node):
                _refuse(order, report, name, other, node)
        last, waiting = (node, []) if merges else (last, [*waiting, node])


def _refuse(order: _Order, report: Report, name: str, other: Node, node: Node) -> None:
    first, second = order.siblings(other, node)
    message = f"'{other.id}' and '{node.id}' use the object '{name}', one of them changes it, and no order is given"
    report.add("T225", (*node.path, "objects"), message, f"write `needs: [{first}]` in '{second}'", key=True)


# -- loops that may be skipped ----------------------------------------------------------------------------------


def _check_loops(stages: StageMap, report: Report, path: Path) -> None:
    for name, objects in _skippable(stages):
        message = f"the loop '{name}' may be skipped, and stages in it change the object '{objects[0]}'"
        hint = "move `when` to those stages: they may be skipped"
        report.add("T226", (*path, name), message, hint, key=True)
    for name, stage in stages.items():
        if isinstance(stage, LoopStage):
            _check_loops(stage.stages, report, (*path, name, "stages"))


def _skippable(stages: StageMap) -> Iterator[tuple[str, list[str]]]:
    loops = {name: merged_in(stage) for name, stage in stages.items() if isinstance(stage, LoopStage)}
    changing = {name: objects for name, objects in loops.items() if objects}
    skipped = skipped_where(stages, bool) if changing else set[str]()
    yield from ((name, objects) for name, objects in changing.items() if name in skipped)
