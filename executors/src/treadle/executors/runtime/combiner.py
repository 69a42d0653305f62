"""The `combine` of a shuffle: a partition is reduced to one pair for each key before it is scattered."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

from treadle.primitives.encoding.read_only import sealed
from treadle.primitives.encoding.references import Kind
from treadle.primitives.errors import TreadleError

from ..failures import InputFailed
from ..operations.attempt_state import Attempt
from ..operations.grouping import plain
from ..operations.keys import firsts, seconds
from ..operations.record_flow import Flow, batched
from ..program import Scatter
from ..spill.folding import Folder


def combined(tail: Scatter, flow: Flow, attempt: Attempt) -> Iterator[list[tuple[Any, Any]]]:
    """Pairs (key, fold) in the order of the keys' first occurrence. Records are folded as they arrive; none is kept."""
    folder, start, pieces = Folder(attempt.function(tail.combine), attempt.room), 0, iter(flow.parts)
    for piece in pieces:
        try:
            done = folder.add_pairs(piece) if flow.kind == "objects" else 0
            if done < len(piece):
                folder.add(*_pairs(flow.kind, piece[done:], start + done))
        except InputFailed:
            _use_up(pieces, tail, attempt)
            raise
        except BaseException as error:
            _use_up(pieces, tail, attempt)
            raise attempt.fail(tail.stage, None, error) from error
        start += len(piece)
    yield from attempt.blamed(batched(folder.results()), tail.stage)


def _pairs(kind: Kind, piece: Any, start: int) -> tuple[Sequence[Any], Sequence[Any]]:
    """(canonical keys, values that a fold cannot modify), the first at position `start`. Raises InputFailed."""
    try:
        keys, values = plain(firsts(kind, piece, start)), seconds(kind, piece)
        return keys, sealed(values) if isinstance(values, list) else values  # keys are never arrays
    except TreadleError as error:
        raise InputFailed(error) from error


def _use_up(pieces: Iterator[Any], tail: Scatter, attempt: Attempt) -> None:
    """Consume the rest before reporting a failure at the end: a failure earlier in the program takes precedence."""
    deque(pieces, maxlen=0)
    attempt.finish()
    attempt.stage = tail.stage
