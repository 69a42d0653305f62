"""Compiles a level to segments: fuse narrow stages, cut at exchanges, explain.

Every stage is visited once, after its inputs. A narrow stage joins the flow of its input when it may (see
`why_not_fused`). A flow becomes a segment when its data has several readers or none, or crosses an exchange. A loop has
a graph for its body, and the state that passes from iteration to iteration.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from treadle.dsl.expressions import read_paths
from treadle.dsl.graph.requirements import expression_paths, inner_stages, order_stages, topological
from treadle.dsl.model import (
    BarrierStage,
    BroadcastStage,
    LoopStage,
    MapStage,
    ReduceStage,
    ShuffleStage,
    Stage,
    WorkflowStage,
    WorkStage,
)
from treadle.dsl.templates import is_reference, template_paths

from ..plan.plan import DataRef, Graph, LoopNode
from . import exchanges, objects
from .lowering import Level
from .maps import map_flow
from .pipeline import Dataset, nested_paths
from .placement import check_place
from .subworkflows import child_node


def plan_level(level: Level) -> None:
    """Make nodes, or open flows, of all stages in the level. Raises UsageError."""
    for name in topological(level.stages):
        excuse = [f"{name} is skipped with these inputs"] if name in level.skipped else []
        with level.planner.sources.excusing(*excuse):
            _visit(level, name, level.stages[name])


def _visit(level: Level, name: str, stage: Stage) -> None:
    if isinstance(stage, WorkStage):
        check_place(level.planner.site, level.planner.policy(stage), (*level.path, "stages", name))
    match stage:
        case MapStage():
            objects.settle_states(level, stage)
            level.close(name, stage, map_flow(level, name, stage))
        case ShuffleStage():
            exchanges.shuffle(level, name, stage)
        case BroadcastStage():
            exchanges.broadcast(level, name, stage)
        case ReduceStage():
            objects.settle_states(level, stage)
            level.close(name, stage, exchanges.reduce_flow(level, name, stage))
        case BarrierStage():
            level.barrier(name, stage)
        case LoopStage():
            level.nodes.append(_loop_node(level, name, stage))
            objects.leave_loop(level, name, stage)
        case WorkflowStage():
            level.nodes.append(child_node(level, name, stage))


# -- loops ----------


def _loop_node(level: Level, name: str, stage: LoopStage) -> LoopNode:
    inner = level.inner(name, stage)
    state, data = _initial(level, name, stage, objects.enter_loop(level, inner, stage))
    body, next_, carried = _body(inner, stage)
    data |= {node for inner in body.nodes for node in inner.data}.union(*carried.values())
    inside = {node.id for node in body.nodes}
    _, order = inner_stages(stage)
    return LoopNode(
        id=name,
        stages=(name,),
        state=state,
        scalars={key: value for key, value in stage.state.items() if state[key] is None},
        body=body,
        next=next_,
        next_scalars={key: value for key, value in stage.next.items() if next_[key] is None},
        max_iterations=level.planner.sources.count(stage.max_iterations),
        until=stage.until or "",
        on_exhausted=stage.on_exhausted,
        cache=level.planner.kept(stage) if level.parent is None else None,
        carried={key: tuple(sorted(nodes & inside)) for key, nodes in carried.items()},
        data=tuple(sorted(data - inside)),
        after=tuple(sorted((order_stages(stage) | order) - set(stage.stages))),
        when=stage.when or "",
        paths=tuple(sorted(_paths(stage, body))),
        reasons=(*level.planner.sources.excuse, "its iterations run inside one activity, with a ledger of their own"),
    )


def _initial(
    level: Level, name: str, stage: LoopStage, held: Mapping[str, Dataset]
) -> tuple[dict[str, DataRef | None], set[str]]:
    state: dict[str, DataRef | None] = {key: dataset.ref for key, dataset in held.items()}
    data = {node for dataset in held.values() for node in dataset.nodes}
    for key, value in stage.state.items():
        state[key] = None
        if is_reference(value):
            dataset = level.state_input(str(value), f"{name}.{key}", name)
            state[key] = dataset.ref
            data |= dataset.nodes
    return state, data


def _body(body: Level, stage: LoopStage) -> tuple[Graph, dict[str, DataRef | None], dict[str, frozenset[str]]]:
    """(the level, the source of each state's next value, for datasets the nodes that produce it)."""
    plan_level(body)
    user = next(iter(stage.stages))
    found = {key: body.reference(str(value), user) for key, value in stage.next.items() if is_reference(value)}
    found |= objects.after_iteration(body, stage)
    next_ = {key: found[key].ref if key in found else None for key in {**stage.next, **found}}
    return body.graph(), next_, {key: dataset.nodes for key, dataset in found.items()}


def _paths(stage: LoopStage, body: Graph) -> set[str]:
    """Every run-time value that the loop or its body reads."""
    values: Any = {**stage.next, **stage.state}
    found = nested_paths(expression_paths(stage) | template_paths(values))
    if stage.until:
        found |= nested_paths(read_paths(stage.until))
    for node in body.nodes:
        found |= set(node.paths)
        if node.when:
            found |= nested_paths(read_paths(node.when))
    return found
