"""How often data is read: what several tasks read, or read again, is there twice and not left open for one reader."""

from __future__ import annotations

from treadle.dsl.graph.graph import next_references, references_of
from treadle.dsl.graph.needs import broadcast_paths, inner_stages
from treadle.dsl.model import LoopStage, Stage


def reads(stage: Stage) -> list[str]:
    """Every reference through which a stage reads data, those of a loop's inner stages too."""
    named = list(references_of(stage))
    again = [reference for path, reference in named if path[0] == "partitioner"]
    again += [path[1] for path in broadcast_paths(stage)]
    if isinstance(stage, LoopStage):
        again += inner_stages(stage)[0]
    return [*(reference for path, reference in named if path[0] != "partitioner"), *again, *again]


def kept_references(loop: LoopStage) -> list[str]:
    """What `next` refers to: the next iteration reads it again."""
    return [reference for _, reference in next_references(loop) for _ in range(2)]
