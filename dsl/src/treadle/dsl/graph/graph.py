"""Who reads whom: stages with their scopes, references resolved, edges and their order.

Scopes are lexical. A stage sees the stages beside it and beside the loops around it; the stages inside a loop are
invisible outside, except as `LOOP.state.x` and the loop's metrics. `state.x` is the state `x` of the innermost loop
around the place that has one of that name.
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

RESERVED = frozenset({"inputs", "stages", "state", "run", "secrets", "trigger", "event"})
"""First words of references and expressions; no stage may be called so."""


class ReferenceProblem(Exception):
    """A reference that leads nowhere, or somewhere it may not."""

    def __init__(self, code: str, message: str, hint: Hint = "") -> None:
        super().__init__(message)
        self.code, self.message, self.hint = code, message, hint


@dataclass(frozen=True)
class Node:
    """A stage at its place. `loops` are the ids of the loops around it, outermost first."""

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
class Graph:
    """The stages of a spec by id, with reference resolution. Of two with one id the first counts, and what it holds."""

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
        """The stage `name` as seen from inside `loops`; raises ReferenceProblem (T101, T102)."""
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
        """The workflow input `name`; raises ReferenceProblem (T101)."""
        if name not in self.spec.inputs:
            declare = f"declare it: `inputs: {{{name}: {{type: ...}}}}`"
            hint = lambda: did_you_mean(name, self.spec.inputs) or declare  # noqa: E731
            raise ReferenceProblem("T101", f"there is no input '{name}'", hint)
        return InputTarget(name, self.spec.inputs[name])

    def state(self, name: str, loops: tuple[str, ...]) -> StateTarget:
        """`state.NAME` as seen from inside `loops`; raises ReferenceProblem (T101, T102)."""
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
        """`LOOP.state.NAME` as seen from inside `loops`; raises ReferenceProblem (T101, T102, T106)."""
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
        """What a bare reference means as seen from inside `loops`; raises ReferenceProblem."""
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
        """As `resolve`; None for what is no reference, or leads nowhere."""
        try:
            return self.resolve(reference, loops) if isinstance(reference, str) else None
        except ReferenceProblem:
            return None

    def node_of(self, target: Target) -> Node | None:
        """The stage that must be over before the target can be read; None for inputs and state inside its loop."""
        match target:
            case StageTarget(node) | StateTarget(node, _, False):
                return node
        return None

    def sibling(self, consumer: Node, source: Node) -> tuple[str, str] | None:
        """The two ids between which an edge orders: `consumer`, or the loop around it that stands beside `source`.

        None when one is inside the other, which orders nothing. A stage that names itself waits for itself.
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
    """The inputs of a stage with their paths below it; a loop has none of its own, a workflow no data at all."""
    if isinstance(stage, LoopStage | WorkflowStage):
        return
    if isinstance(stage.input, list):
        for index, item in enumerate(stage.input):
            yield ("input", index), item
    else:
        yield ("input",), stage.input


def references_of(stage: Stage) -> Iterator[tuple[Path, str]]:
    """The bare data references of a stage itself (of a loop: those of `state`), with their paths below it."""
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
    """The bare references of `next`; they are read inside the loop, after the body."""
    yield from ((("next", name), value) for name, value in bare(loop.next))


def all_references(node: Node) -> Iterator[tuple[Path, str, tuple[str, ...]]]:
    """Every bare data reference of a stage: its path in the document, and the loops inside of which it is read."""
    yield from (((*node.path, *below), reference, node.loops) for below, reference in references_of(node.stage))
    if isinstance(node.stage, LoopStage):
        inner = (*node.loops, node.id)
        yield from (((*node.path, *below), reference, inner) for below, reference in next_references(node.stage))


def bare(values: Mapping[str, JsonValue]) -> Iterator[tuple[str, str]]:
    """The bare references among the values of `state` or `next`: every text without `${{ }}`."""
    yield from ((name, value) for name, value in values.items() if is_reference(value))
