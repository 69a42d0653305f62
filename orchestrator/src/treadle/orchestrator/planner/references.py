"""What stages refer to: the edges of the graph, read from the spec alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from treadle.dsl.expressions import parse, paths
from treadle.dsl.graph.stages import all_stages
from treadle.dsl.model import (
    BarrierStage,
    LoopStage,
    RangePartitioner,
    ReduceStage,
    ShuffleStage,
    Stage,
    WorkflowStage,
)
from treadle.dsl.templates import is_reference as is_reference
from treadle.dsl.templates import template_paths

StageMap = Mapping[str, Stage]


def input_references(stage: Stage) -> list[str]:
    """The bare references a stage reads data from, in order."""
    if isinstance(stage, LoopStage):
        return [value for value in stage.state.values() if is_reference(value)]
    if isinstance(stage, WorkflowStage):
        return []
    values = stage.input if isinstance(stage.input, list) else [stage.input]
    return [value for value in values if isinstance(value, str)]


def stage_name(reference: str) -> str | None:
    """The stage of a reference: `a` and `a.state.x` give `a`; `inputs.x` and `state.x` give None."""
    head = reference.split(".", 1)[0]
    return None if head in ("inputs", "state") else head


def boundary_reference(stage: Stage) -> str | None:
    partitioner = stage.partitioner if isinstance(stage, ShuffleStage) else None
    given = partitioner.boundaries if isinstance(partitioner, RangePartitioner) else None
    return given if isinstance(given, str) else None


def data_stages(stage: Stage) -> set[str]:
    """Stages whose data this one needs: inputs, broadcasts in `with`, boundaries."""
    names = [stage_name(reference) for reference in input_references(stage)]
    names += [boundary_reference(stage)]
    names += [path[1] for path in broadcast_paths(stage)]
    return {name for name in names if name}


def broadcast_paths(stage: Stage) -> set[tuple[str, ...]]:
    """`${{ stages.X }}` of a broadcast, as paths."""
    return {path for path in template_paths(getattr(stage, "with_", {})) if path[0] == "stages" and len(path) == 2}


def expression_paths(stage: Stage) -> set[tuple[str, ...]]:
    """Run-time paths of `when` and of every template of the stage itself."""
    values = stage.model_dump(exclude={"stages", "next", "until", "when", "uses"})
    found = template_paths(values)
    return found | paths(parse(stage.when)) if stage.when else found


def order_stages(stage: Stage) -> set[str]:
    """Stages that must be over first although no data comes from them."""
    named = {path[1] for path in expression_paths(stage) if path[0] == "stages"}
    return named | {name for name in map(stage_name, stage.needs) if name}


def inner_references(loop: LoopStage) -> tuple[set[str], set[str]]:
    """(data, order): stages mentioned inside a loop, its own inner ones included."""
    data = {name for value in loop.next.values() if is_reference(value) and (name := stage_name(str(value)))}
    order = {path[1] for path in template_paths(loop.next) if path[0] == "stages"}
    if loop.until:
        order |= {path[1] for path in paths(parse(loop.until)) if path[0] == "stages"}
    for stage in loop.stages.values():
        data |= data_stages(stage)
        order |= order_stages(stage)
        if isinstance(stage, LoopStage):
            inner_data, inner_order = inner_references(stage)
            data, order = data | inner_data, order | inner_order
    return data, order


def reads(stage: Stage) -> list[str]:
    """Every reference through which a stage reads data, those of a loop's inner stages too.

    What several tasks read, or read again, is there twice: it cannot be left open for one reader.
    """
    found = input_references(stage)
    whole = [path[1] for path in broadcast_paths(stage)] + [boundary_reference(stage) or ""]
    found += [name for name in whole if name for _ in range(2)]
    if isinstance(stage, LoopStage):
        data, _ = inner_references(stage)
        found += [name for name in sorted(data) for _ in range(2)]
    return found


def kept_references(loop: LoopStage) -> list[str]:
    """What `next` refers to, twice: the next iteration reads it again."""
    return [str(value) for value in loop.next.values() if is_reference(value) for _ in range(2)]


def dependencies(stage: Stage) -> set[str]:
    """Every stage, wherever it is, that must come before this one."""
    found = data_stages(stage) | order_stages(stage)
    if isinstance(stage, LoopStage):
        data, order = inner_references(stage)
        found |= data | order
    return found


def topological(stages: StageMap) -> list[str]:
    """Stage ids, needs first; ties in document order. The graph has no cycles (validated)."""
    order: list[str] = []
    seen: set[str] = set()

    def visit(name: str) -> None:
        if name in seen:
            return
        seen.add(name)
        for other in stages:
            if other in needs[name]:
                visit(other)
        order.append(name)

    needs = {name: dependencies(stage) for name, stage in stages.items()}
    for name in stages:
        visit(name)
    return order


def loops_around(stages: StageMap, around: LoopStage | None = None) -> dict[str, LoopStage | None]:
    """stage id -> the loop directly around it."""
    found: dict[str, LoopStage | None] = {}
    for name, stage in stages.items():
        found[name] = around
        if isinstance(stage, LoopStage):
            found |= loops_around(stage.stages, stage)
    return found


class Singles:
    """Whether a reference is one record: a `per: all` reduce, also through barriers and loop states."""

    def __init__(self, stages: StageMap) -> None:
        self._stages = dict(all_stages(stages))
        self._around = loops_around(stages)
        self._asked: set[tuple[str, str]] = set()

    def of(self, reference: Any, user: str) -> bool:
        """`user` is the stage that makes the reference, for the meaning of `state.x`."""
        if not is_reference(reference):
            return False
        head, *rest = str(reference).split(".")
        if head == "inputs":
            return False
        if head == "state":
            loop = self._around.get(user)
            return loop is not None and self._state(loop, rest[0])
        stage = self._stages.get(head)
        if isinstance(stage, LoopStage):
            return self._state(stage, rest[1])
        if isinstance(stage, BarrierStage):
            return self.of(stage.input, head)
        return isinstance(stage, ReduceStage) and stage.per == "all"

    def _state(self, loop: LoopStage, name: str) -> bool:
        key = (next(iter(loop.stages)), name)
        if key in self._asked:
            return True
        self._asked.add(key)
        try:
            loop_id = next(known for known, stage in self._stages.items() if stage is loop)
            inner = next(iter(loop.stages))
            return self.of(loop.state.get(name), loop_id) and (name not in loop.next or self.of(loop.next[name], inner))
        finally:
            self._asked.discard(key)
