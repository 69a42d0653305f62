"""How a segment ends that does not close."""

from __future__ import annotations

from ...instructions import Problem


class SegmentFailed(Exception):
    """The segment cannot close; committed partitions stay committed."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


class BlocksLost(Exception):
    """Input blocks have no readable location; their producers must run again."""

    def __init__(self, blocks: set[str]) -> None:
        super().__init__(f"{len(blocks)} blocks lost")
        self.blocks = tuple(sorted(blocks))


class Stopped(Exception):
    """The segment was drained as told; it can be taken up again."""
