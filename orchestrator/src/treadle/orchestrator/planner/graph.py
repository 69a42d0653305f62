"""Compiles a level to segments: fuse narrow stages, cut at exchanges, explain.

Every stage is visited once, after its inputs. A narrow stage joins the flow of its input when it may (see
`why_not_fused`). A flow becomes a segment when its data has several readers or none, or crosses an exchange.
"""

from __future__ import annotations

from treadle.dsl.graph.requirements import topological
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

from . import exchanges
from .loops import loop_node
from .lowering import Level
from .maps import map_flow
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
            level.close(name, stage, map_flow(level, name, stage))
        case ShuffleStage():
            exchanges.shuffle(level, name, stage)
        case BroadcastStage():
            exchanges.broadcast(level, name, stage)
        case ReduceStage():
            level.close(name, stage, exchanges.reduce_flow(level, name, stage))
        case BarrierStage():
            level.barrier(name, stage)
        case LoopStage():
            level.nodes.append(loop_node(level, name, stage, plan_level))
        case WorkflowStage():
            level.nodes.append(child_node(level, name, stage))
