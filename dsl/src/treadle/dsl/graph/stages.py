"""The stages of a spec at every depth, and the functions that they name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..expressions import read_paths
from ..model import LoopStage, MapStage, ReduceStage, ShuffleStage, Spec, Stage
from ..templates import template_paths
from .requirements import expression_paths


def all_stages(stages: Mapping[str, Stage]) -> Iterator[tuple[str, Stage]]:
    """Yield every stage, a loop before its inner stages; ids are unique."""
    for name, stage in stages.items():
        yield name, stage
        if isinstance(stage, LoopStage):
            yield from all_stages(stage.stages)


def functions_of(stage: Stage) -> Iterator[str]:
    """Yield `module:name` of each function that the stage itself names; loops name none."""
    match stage:
        case MapStage():
            yield stage.uses
        case ReduceStage():
            yield from filter(None, (stage.uses, stage.combine, stage.finish))
        case ShuffleStage():
            by = stage.by if isinstance(stage.by, str) and stage.by != "key" else None
            yield from filter(None, (by, stage.combine))


def valued_stages(spec: Spec) -> set[str]:
    """Return the stages whose `value` an expression of the spec reads."""
    found = template_paths(spec.outputs)
    for _, stage in all_stages(spec.stages):
        found |= expression_paths(stage)
        if isinstance(stage, LoopStage):
            found |= template_paths(stage.next) | (read_paths(stage.until) if stage.until else set())
    return {path[1] for path in found if len(path) > 2 and path[0] == "stages" and path[2] == "value"}
