"""The names that a stage depends on, from the stage alone, without resolving them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from ..expressions import read_paths
from ..model import LoopStage, Stage
from ..templates import template_paths
from .graph import inputs_of, next_references, references_of

_EVALUATED = {
    "with_", "partitions", "output", "failed_items", "max_concurrency", "batch", "fan_in", "state",
    "max_iterations",
}  # fmt: skip
"""Keys of a stage that may hold templates; in other keys, such as column names or `cache`, `${{` is plain text."""
StageMap = Mapping[str, Stage]


def stage_name(reference: str) -> str | None:
    """Return the stage of a reference: `a` and `a.state.x` give `a`; `inputs.x` and `state.x` give None."""
    head = reference.split(".", 1)[0]
    return None if head in ("inputs", "state") else head


def broadcast_paths(stage: Stage) -> set[tuple[str, ...]]:
    """Return the paths of broadcasts, `${{ stages.X }}`."""
    return {path for path in template_paths(getattr(stage, "with_", {})) if path[0] == "stages" and len(path) == 2}


def expression_paths(stage: Stage) -> set[tuple[str, ...]]:
    """Return the run-time paths of `when` and of every template of the stage itself."""
    sources = [each.model_dump(exclude={"items"}) for _, each in inputs_of(stage) if not isinstance(each, str)]
    found = template_paths([sources, stage.model_dump(include=_EVALUATED)])
    return found | read_paths(stage.when) if stage.when else found


def data_stages(stage: Stage) -> set[str]:
    """Return the stages whose data this stage needs: inputs, boundaries, broadcasts in `with`, states of a loop."""
    named = {stage_name(reference) for _, reference in references_of(stage)}
    return {name for name in named if name} | {path[1] for path in broadcast_paths(stage)}


def order_stages(stage: Stage) -> set[str]:
    """Return the stages that must end first although they pass no data."""
    named = {path[1] for path in expression_paths(stage) if path[0] == "stages"}
    return named | {name for name in map(stage_name, stage.needs) if name}


def inner_stages(loop: LoopStage) -> tuple[set[str], set[str]]:
    """Return (data, order): stages needed inside a loop, its own inner stages included."""
    data = {name for _, reference in next_references(loop) if (name := stage_name(reference))}
    order = {path[1] for path in template_paths(loop.next) if path[0] == "stages"}
    if loop.until:
        order |= {path[1] for path in read_paths(loop.until) if path[0] == "stages"}
    for stage in loop.stages.values():
        data |= data_stages(stage)
        order |= order_stages(stage)
        if isinstance(stage, LoopStage):
            inner_data, inner_order = inner_stages(stage)
            data, order = data | inner_data, order | inner_order
    return data, order


def dependencies(stage: Stage) -> set[str]:
    """Return every stage, at any depth, that must come before this one."""
    found = data_stages(stage) | order_stages(stage)
    return found.union(*inner_stages(stage)) if isinstance(stage, LoopStage) else found


def skipped_where(stages: StageMap, judge: Callable[[str], bool]) -> set[str]:
    """Return the stages whose condition satisfies `judge`, and the stages that read their data."""
    found: set[str] = set()
    for name in topological(stages):
        stage = stages[name]
        inner = inner_stages(stage)[0] if isinstance(stage, LoopStage) else set[str]()
        if (stage.when and judge(stage.when)) or not found.isdisjoint(data_stages(stage) | inner):
            found.add(name)
    return found


def topological(stages: StageMap) -> list[str]:
    """Return stage ids in topological order; ties in document order."""
    places = {name: place for place, name in enumerate(stages)}
    found = {name: dependencies(stage) & stages.keys() for name, stage in stages.items()}
    return needs_first({name: sorted(needs, key=places.__getitem__) for name, needs in found.items()})


def needs_first(needs: Mapping[str, Iterable[str]]) -> list[str]:
    """Return the names in topological order; ties in the given order.

    Without recursion, since chains may be long; names in a cycle come in some order.
    """
    order: list[str] = []
    seen: set[str] = set()
    for first in needs:
        way = [] if first in seen else [(first, iter(needs[first]))]
        seen.add(first)
        while way:
            name, left = way[-1]
            need = next((one for one in left if one in needs and one not in seen), None)
            if need is None:
                order.append(name)
                way.pop()
            else:
                seen.add(need)
                way.append((need, iter(needs[need])))
    return order


def all_needs(stages: StageMap, names: Iterable[str]) -> set[str]:
    """Return the `names` that are stages, and all stages that must come before them."""
    found: set[str] = set()
    todo = [*names]
    while todo:
        name = todo.pop()
        if name in stages and name not in found:
            found.add(name)
            todo += dependencies(stages[name])
    return found
