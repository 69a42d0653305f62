"""How often data is read (what several tasks read, or read again, is there twice and not left open for one reader), and
what a stage reads beside one input.
"""

from __future__ import annotations

from collections.abc import Callable

from treadle.dsl.graph.graph import inputs_of, next_references, references_of
from treadle.dsl.graph.requirements import StageMap, broadcast_paths, data_stages, inner_stages, topological
from treadle.dsl.model import LoopStage, Stage


def reads(stage: Stage) -> list[str]:
    """Every reference through which a stage reads data, those of a loop's inner stages too."""
    once = [reference for path, reference in references_of(stage) if path[0] != "partitioner"]
    again = beside_input(stage)
    if isinstance(stage, LoopStage):
        again += inner_stages(stage)[0]
    return [*once, *again, *again]


def beside_input(stage: Stage) -> list[str]:
    """Stages whose data it reads as values: broadcasts in `with`, and of boundaries."""
    named = [reference for path, reference in references_of(stage) if path[0] == "partitioner"]
    return sorted({*named, *(path[1] for path in broadcast_paths(stage))})


def beside_one_input(stage: Stage) -> list[str]:
    """All that a stage reads beside what a task of it does: its other inputs, and values. They too must be there."""
    inputs = [one for _, one in inputs_of(stage)]
    named = [one for one in inputs if isinstance(one, str)] if len(inputs) > 1 else []
    return [*named, *beside_input(stage)]


def skipped_where(stages: StageMap, judge: Callable[[str], bool]) -> set[str]:
    """Stages whose condition is one of those, and stages that read their data."""
    found: set[str] = set()
    for name in topological(stages):
        stage = stages[name]
        inner = inner_stages(stage)[0] if isinstance(stage, LoopStage) else set[str]()
        if (stage.when and judge(stage.when)) or not found.isdisjoint(data_stages(stage) | inner):
            found.add(name)
    return found


def kept_references(loop: LoopStage) -> list[str]:
    """What `next` refers to: the next iteration reads it again."""
    return [reference for _, reference in next_references(loop) for _ in range(2)]
