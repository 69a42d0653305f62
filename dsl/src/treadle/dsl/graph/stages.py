"""The stages of a spec at every depth, and the functions that they name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..model import LoopStage, MapStage, ReduceStage, ShuffleStage, Stage


def all_stages(stages: Mapping[str, Stage]) -> Iterator[tuple[str, Stage]]:
    """Every stage, a loop before those inside of it; ids are unique."""
    for name, stage in stages.items():
        yield name, stage
        if isinstance(stage, LoopStage):
            yield from all_stages(stage.stages)


def functions_of(stage: Stage) -> Iterator[str]:
    """`module:name` of each function that the stage itself names; a loop names none."""
    match stage:
        case MapStage():
            yield stage.uses
        case ReduceStage():
            yield from filter(None, (stage.uses, stage.combine, stage.finish))
        case ShuffleStage():
            by = stage.by if isinstance(stage.by, str) and stage.by != "key" else None
            yield from filter(None, (by, stage.combine))
