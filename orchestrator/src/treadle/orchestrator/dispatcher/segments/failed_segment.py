"""How a segment ends that does not close."""

from __future__ import annotations

from typing import Self

from treadle.primitives.errors import CorruptError, FailureClass, InternalError, MissingError, StoreError, TreadleError

from ...scheduler.instructions import Problem


class SegmentFailed(Exception):
    """The segment cannot close; committed partitions stay committed."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem

    @classmethod
    def by(cls, error: TreadleError, node: str) -> Self:
        """An error of treadle's own stopped the node, outside of its tasks."""
        return cls(Problem(kind_of(error), str(error), node))


def kind_of(error: TreadleError) -> FailureClass:
    """Who must act: in doubt, the user."""
    match error:
        case CorruptError():
            return FailureClass.CORRUPT
        case MissingError() | StoreError():
            return FailureClass.UNREACHABLE
        case InternalError():
            return FailureClass.INTERNAL
    return FailureClass.USER_ERROR


class BlocksLost(Exception):
    """Input blocks have no readable location; their producers must run again."""

    def __init__(self, blocks: set[str]) -> None:
        super().__init__(f"{len(blocks)} blocks lost")
        self.blocks = tuple(sorted(blocks))


class Stopped(Exception):
    """The segment was drained as told; it can be taken up again."""
