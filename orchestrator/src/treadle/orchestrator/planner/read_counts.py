"""How often data is read, and the inputs of a stage besides its data.

Data that several tasks read, or that is read again, counts twice, so its flow is not left open for a single reader.
"""

from __future__ import annotations

from treadle.dsl.graph.graph import inputs_of, next_references, references_of
from treadle.dsl.graph.requirements import broadcast_paths, inner_stages
from treadle.dsl.model import LoopStage, Stage


def reads(stage: Stage) -> list[str]:
    """Every reference through which a stage reads data, including a loop's inner stages."""
    once = [reference for path, reference in references_of(stage) if path[0] != "partitioner"]
    again = beside_input(stage)
    if isinstance(stage, LoopStage):
        again += inner_stages(stage)[0]
    return [*once, *again, *again]


def beside_input(stage: Stage) -> list[str]:
    """Stages whose data is read as values: broadcasts in `with`, and broadcasts of boundaries."""
    named = [reference for path, reference in references_of(stage) if path[0] == "partitioner"]
    return sorted({*named, *(path[1] for path in broadcast_paths(stage))})


def beside_one_input(stage: Stage) -> list[str]:
    """All inputs of a stage besides the input of one task: its other inputs, and values. They must exist too."""
    inputs = [one for _, one in inputs_of(stage)]
    named = [one for one in inputs if isinstance(one, str)] if len(inputs) > 1 else []
    return [*named, *beside_input(stage)]


def kept_references(loop: LoopStage) -> list[str]:
    """The references of `next`, twice each, since the next iteration reads them again."""
    return [reference for _, reference in next_references(loop) for _ in range(2)]
