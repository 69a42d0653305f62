"""The ways in which a segment ends without closing."""

from __future__ import annotations

from typing import Self

from treadle.primitives.errors import CorruptError, FailureClass, InternalError, MissingError, StoreError, TreadleError

from ...scheduler.instructions import Problem


class SegmentFailed(Exception):
    """The segment cannot close. Committed partitions stay committed."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem

    @classmethod
    def by(cls, error: TreadleError, node: str) -> Self:
        """The failure of a node by one of treadle's own errors, outside of its tasks."""
        return cls(Problem(kind_of(error), str(error), node))


def kind_of(error: TreadleError) -> FailureClass:
    """The failure class of an error. The default is the user's error."""
    match error:
        case CorruptError():
            return FailureClass.CORRUPT
        case MissingError() | StoreError():
            return FailureClass.UNREACHABLE
        case InternalError():
            return FailureClass.INTERNAL
    return FailureClass.USER_ERROR


class BlocksLost(Exception):
    """Input blocks have no readable location. Their producers must run again."""

    def __init__(self, blocks: set[str]) -> None:
        super().__init__(f"{len(blocks)} blocks lost")
        self.blocks = tuple(sorted(blocks))


class Stopped(Exception):
    """The segment was drained by order. It can be resumed."""
