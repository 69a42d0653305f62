"""Executes `loop`."""

from __future__ import annotations

from typing import Any

from treadle.primitives.errors import UsageError

from ..graph.graph import Node, bare
from ..model import LoopStage
from ..templates import render
from .calls import ReferenceFailure
from .data import ReferenceDataset
from .run import ReferenceRun
from .scopes import FinishedStage, Frame
from .stages import dataset_of


def run_loop(run: ReferenceRun, node: Node, loop: LoopStage, frame: Frame) -> FinishedStage:
    """Run the body, then `next`, then `until`, at most `maxIterations` times."""
    states, scalars = read_state(run, loop.state, frame, frame.prefix + node.id)
    limit = _limit(run, loop, frame.prefix + node.id)
    for iteration in range(1, limit + 1):
        inner = Frame((*node.loops, node.id), f"{frame.prefix}{node.id}[{iteration}].", frame, scalars, states)
        for name in loop.stages:
            run.stage(name, inner)
        new_states, new_scalars = read_state(run, loop.next, inner, frame.prefix + node.id)
        states, scalars = {**states, **new_states}, {**scalars, **new_scalars}
        env = {**run.env(inner), "state": {**inner.all_scalars(), **scalars}}
        if loop.until is not None and run.condition(loop.until, env, frame.prefix + node.id):
            break
    else:
        if loop.until is not None and loop.on_exhausted == "fail":
            error = UsageError(f"`until: {loop.until}` was not true after maxIterations: {limit}")
            raise ReferenceFailure(frame.prefix + node.id, None, error)
    return FinishedStage(metrics={"iterations": iteration}, scalars=scalars, states=states)


def _limit(run: ReferenceRun, loop: LoopStage, path: str) -> int:
    try:
        return run.number(loop.max_iterations)
    except UsageError as error:
        raise ReferenceFailure(path, None, error) from error


def read_state(
    run: ReferenceRun, given: dict[str, Any], frame: Frame, path: str
) -> tuple[dict[str, ReferenceDataset], dict[str, Any]]:
    """Return `state` or `next` as (datasets, scalars), all read before any is set."""
    references = dict(bare(given))
    try:
        states = {name: dataset_of(run, reference, frame) for name, reference in references.items()}
        scalars = {name: render(value, run.env(frame)) for name, value in given.items() if name not in references}
    except UsageError as error:
        raise ReferenceFailure(path, None, error) from error
    return states, scalars
