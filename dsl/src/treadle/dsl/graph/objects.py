"""The shared objects that stages use."""

from __future__ import annotations

from ..model import LoopStage, MapStage, ReduceStage, Stage
from .stages import all_stages


def used_objects(stage: Stage) -> dict[str, bool]:
    """Return the objects that the stage itself names, with whether it may change them."""
    given = stage.objects if isinstance(stage, MapStage | ReduceStage) else []
    return (
        {name: mode == "merge" for name, mode in given.items()}
        if isinstance(given, dict)
        else dict.fromkeys(given, True)
    )


def merged_in(loop: LoopStage) -> list[str]:
    """Return the objects that stages inside the loop may change."""
    inside = (used_objects(stage) for _, stage in all_stages(loop.stages))
    return sorted({name for used in inside for name, merges in used.items() if merges})
