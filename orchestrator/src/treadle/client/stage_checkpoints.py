"""The checkpoints of a gang that is still running: the states of its members, read from the ledger of its segment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from treadle.orchestrator.dispatcher.ledger.ledger import read
from treadle.orchestrator.dispatcher.ledger.ledger_state import ChainHistory
from treadle.orchestrator.plan.plan import Plan
from treadle.primitives.blocks import Blocks
from treadle.primitives.encoding.references import BlockRef
from treadle.primitives.errors import MissingError, UsageError

from .attempt_logs import nodes_of

if TYPE_CHECKING:
    from treadle.orchestrator.run_store.run_files import RunFiles

_TRIES = 5
"""Reads of a checkpoint. Meanwhile the gang may have two later ones, and this one is gone."""


@dataclass(frozen=True)
class StageCheckpoint:
    """The states that all members of a gang saved together."""

    number: int
    """1, 2, ..."""
    states: Sequence[Any]
    """By rank; arrays and tables are read-only views."""


def read_checkpoint(files: RunFiles, stage: str, number: int | None = None) -> StageCheckpoint:
    """The last checkpoint of a stage, or the one with this number: two are kept, and none after the gang's commit.

    Raises UsageError if the stage does not keep it, CorruptError, MissingError and StoreError. Blocking.
    """
    plan = files.find(Plan, "plan")
    if plan is not None and not nodes_of(plan, stage):
        raise UsageError(f"the workflow has no stage {stage}", "See: treadle show")
    for tries_left in reversed(range(_TRIES)):
        kept = _kept(files, plan, stage) if plan is not None else {}
        wanted = max(kept, default=0) if number is None else number
        if wanted not in kept:
            raise _missing(stage, wanted, kept)
        try:
            return StageCheckpoint(wanted, _states(files, kept[wanted]))
        except MissingError:
            if not tries_left:
                raise
    raise AssertionError


def _kept(files: RunFiles, plan: Plan, stage: str) -> Mapping[int, Sequence[BlockRef]]:
    """Number -> states of a checkpoint that the gang may start from. In a loop: of the last iteration that has one."""
    inside = nodes_of(plan, stage)
    found: Mapping[int, Sequence[BlockRef]] = {}
    for node in plan.graph.nodes:
        if node.id in inside or stage in node.stages:
            histories = ChainHistory(read(files.store, files.segment(node.id), files.key))
            named = (one for name, one in histories.items() if name.rpartition("/")[2] in inside)
            found = next((one.checkpoints for one in reversed([*named]) if one.checkpoints), found)
    return found


def _states(files: RunFiles, states: Sequence[BlockRef]) -> list[Any]:
    blocks = Blocks(files.store, files.run)
    values = [blocks.get(state.slice(0)) for state in states]
    return [value[0] if state.kind == "objects" else value for value, state in zip(values, states, strict=True)]


def _missing(stage: str, wanted: int, kept: Mapping[int, object]) -> UsageError:
    if kept:
        return UsageError(f"{stage} keeps no checkpoint {wanted}", f"It keeps {' and '.join(map(str, sorted(kept)))}.")
    hint = "A gang has checkpoints once all its members have called gang.checkpoint, until it ends."
    return UsageError(f"{stage} has no checkpoint", hint)
