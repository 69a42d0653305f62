"""The graph of stages: their scopes, resolved references, edges and order.

Scopes are lexical. A stage sees its siblings and the siblings of the loops around it. The stages inside a loop are
invisible outside, except as `LOOP.state.x` and the loop's metrics. `state.x` is the state `x` of the innermost
enclosing loop that has a state of this name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from pydantic import JsonValue

from ..diagnostics.diagnostics import Hint, Path, did_you_mean, for_files, one_of
from ..model import (
    Input,
    Items,
    LoopStage,
    Range,
    RangePartitioner,
    ShuffleStage,
    Source,
    Spec,
    Stage,
    WorkflowStage,
)
from ..templates import is_reference

RESERVED = frozenset({"inputs", "objects", "stages", "state", "run", "secrets", "trigger", "event"})
"""First words of references and expressions; not allowed as ids of stages."""


class ReferenceProblem(Exception):
    """A reference to a missing stage, input or state, or to one that is not allowed here."""

    def __init__(self, code: str, message: str, hint: Hint = "") -> None:
        super().__init__(message)
        self.code, self.message, self.hint = code, message, hint


@dataclass(frozen=True)
class Node:
    """A stage and its place. `loops` are the ids of the loops around it, outermost first."""

    id: str
    stage: Stage
    path: Path
    loops: tuple[str, ...] = ()


@dataclass(frozen=True)
class StageTarget:
    node: Node


@dataclass(frozen=True)
class InputTarget:
    name: str
    input: Input


@dataclass(frozen=True)
class StateTarget:
    """State `name` of `loop`; `inside` when read by a stage of its body, otherwise after the loop."""

    loop: Node
    name: str
    inside: bool


Target = StageTarget | InputTarget | StateTarget


@dataclass
class StageGraph:
    """The stages of a spec by id, with reference resolution. Of two stages with one id, the first counts, with its
    contents.
    """

    spec: Spec
    nodes: dict[str, Node] = field(default_factory=dict)
    repeated: list[Node] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._add(self.spec.stages, ("stages",), ())

    def _add(self, stages: Mapping[str, Stage], path: Path, loops: tuple[str, ...]) -> None:
        for name, stage in stages.items():
            node = Node(name, stage, (*path, name), loops)
            if name in self.nodes:
                self.repeated.append(node)
                continue
            self.nodes[name] = node
            if isinstance(stage, LoopStage):
                self._add(stage.stages, (*node.path, "stages"), (*loops, name))

    def stage(self, name: str, loops: tuple[str, ...]) -> Node:
        """Return the stage `name` as seen from inside `loops`. Raises ReferenceProblem (T101, T102)."""
        node = self.nodes.get(name)
        if node is None:
            raise ReferenceProblem("T101", f"there is no stage '{name}'", lambda: self._meant(name, loops))
        if not _sees(loops, node):
            inner = node.loops[-1]
            hint = f"carry it in the loop's state and read `{inner}.state.NAME`"
            raise ReferenceProblem("T102", f"stage '{name}' is inside the loop '{inner}' and not visible here", hint)
        return node

    def _meant(self, name: str, loops: tuple[str, ...]) -> str:
        visible = [other.id for other in self.nodes.values() if _sees(loops, other)]
        return did_you_mean(name, visible) or _list(visible)

    def input(self, name: str) -> InputTarget:
        """Return the workflow input `name`. Raises ReferenceProblem (T101)."""
        if name not in self.spec.inputs:
            declare = f"declare it: `inputs: {{{name}: {{type: ...}}}}`"
            hint = lambda: did_you_mean(name, self.spec.inputs) or declare  # noqa: E731
            raise ReferenceProblem("T101", f"there is no input '{name}'", hint)
        return InputTarget(name, self.spec.inputs[name])

    def state(self, name: str, loops: tuple[str, ...]) -> StateTarget:
        """Return `state.NAME` as seen from inside `loops`. Raises ReferenceProblem (T101, T102)."""
        if not loops:
            hint = "after a loop write `LOOP.state.NAME`"
            raise ReferenceProblem("T102", f"`state.{name}` has a meaning only inside a loop", hint)
        known: list[str] = []
        for loop_id in reversed(loops):
            node = self.nodes[loop_id]
            assert isinstance(node.stage, LoopStage)
            if name in node.stage.state:
                return StateTarget(node, name, inside=True)
            known += node.stage.state
        raise ReferenceProblem("T101", f"the loop '{loops[-1]}' has no state '{name}'", lambda: _state(name, known))

    def loop_state(self, loop: str, name: str, loops: tuple[str, ...]) -> StateTarget:
        """Return `LOOP.state.NAME` as seen from inside `loops`. Raises ReferenceProblem (T101, T102, T106)."""
        node = self.stage(loop, loops)
        if not isinstance(node.stage, LoopStage):
            raise ReferenceProblem("T106", f"'{loop}' is a {node.stage.type}, only loops have state", f"write `{loop}`")
        if loop in loops:
            raise ReferenceProblem("T102", f"inside the loop '{loop}' its state is `state.{name}`", "")
        if name not in node.stage.state:
            known = list(node.stage.state)
            raise ReferenceProblem("T101", f"the loop '{loop}' has no state '{name}'", lambda: _state(name, known))
        return StateTarget(node, name, inside=False)

    def resolve(self, reference: str, loops: tuple[str, ...]) -> Target:
        """Return the target of a bare reference, as seen from inside `loops`. Raises ReferenceProblem."""
        match reference.split("."):
            case [name]:
                return StageTarget(self.stage(name, loops))
            case ["inputs", name]:
                return self.input(name)
            case ["state", name]:
                return self.state(name, loops)
            case [loop, "state", name]:
                return self.loop_state(loop, name, loops)
            case ["stages", name, *_]:
                hint = f"write `{name}`: references to data do not begin with `stages`"
                raise ReferenceProblem("T101", f"`{reference}` is not a reference to data", hint)
        hint = for_files(reference) or "write a stage's id, `inputs.x`, `state.x` or `LOOP.state.x`"
        raise ReferenceProblem("T101", f"`{reference}` is not a reference to data", hint)

    def find(self, reference: object, loops: tuple[str, ...]) -> Target | None:
        """Return the target like `resolve`, but None for an invalid reference."""
        try:
            return self.resolve(reference, loops) if isinstance(reference, str) else None
        except ReferenceProblem:
            return None

    def node_of(self, target: Target) -> Node | None:
        """Return the stage that must end before the target can be read; None for inputs and for state
        inside its loop.
        """
        match target:
            case StageTarget(node) | StateTarget(node, _, False):
                return node
        return None

    def sibling(self, consumer: Node, source: Node) -> tuple[str, str] | None:
        """Return the two ids that an edge orders: `source`, and `consumer` or the loop around it that is a sibling of
        `source`.

        None when one contains the other, which orders nothing. A stage that names itself waits for itself.
        """
        if source.id in consumer.loops or consumer.id in source.loops:
            return None
        depth = len(source.loops)
        chain = (*consumer.loops, consumer.id)
        return source.id, chain[depth]


def _sees(loops: tuple[str, ...], node: Node) -> bool:
    return loops[: len(node.loops)] == node.loops


def _state(name: str, known: list[str]) -> str:
    return did_you_mean(name, known) or f"its state: {one_of(known)}"


def _list(names: list[str]) -> str:
    return f"there is {one_of(sorted(names))}" if names else ""


def inputs_of(stage: Stage) -> Iterator[tuple[Path, str | Source | Items | Range]]:
    """Yield the inputs of a stage with their paths below it; loops and workflows have none."""
    if isinstance(stage, LoopStage | WorkflowStage):
        return
    if isinstance(stage.input, list):
        for index, item in enumerate(stage.input):
            yield ("input", index), item
    else:
        yield ("input",), stage.input


def references_of(stage: Stage) -> Iterator[tuple[Path, str]]:
    """Yield the bare data references of the stage itself (for a loop: of `state`), with their paths below it."""
    for path, item in inputs_of(stage):
        if isinstance(item, str):
            yield path, item
    if isinstance(stage, ShuffleStage) and isinstance(stage.partitioner, RangePartitioner):
        boundaries = stage.partitioner.boundaries
        if isinstance(boundaries, str):
            yield ("partitioner", "boundaries"), boundaries
    if isinstance(stage, LoopStage):
        yield from ((("state", name), value) for name, value in bare(stage.state))


def next_references(loop: LoopStage) -> Iterator[tuple[Path, str]]:
    """Yield the bare references of `next`, which are read inside the loop, after the body."""
    yield from ((("next", name), value) for name, value in bare(loop.next))


def all_references(node: Node) -> Iterator[tuple[Path, str, tuple[str, ...]]]:
    """Yield every bare data reference of a stage: its path in the document, and the loops inside which it is read."""
    yield from (((*node.path, *below), reference, node.loops) for below, reference in references_of(node.stage))
    if isinstance(node.stage, LoopStage):
        inner = (*node.loops, node.id)
        yield from (((*node.path, *below), reference, inner) for below, reference in next_references(node.stage))


def bare(values: Mapping[str, JsonValue]) -> Iterator[tuple[str, str]]:
    """Yield the bare references among the values of `state` or `next`: every string without `${{ }}`."""
    yield from ((name, value) for name, value in values.items() if is_reference(value))
