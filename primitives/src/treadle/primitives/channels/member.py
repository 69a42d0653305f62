"""This process as a member of a gang."""

from __future__ import annotations

from ..blocks import Blocks
from .gang import Gang


class Member:
    """Connected to the coordinator; to other members once there is something to send."""

    def __init__(self, gang: Gang, key: bytes, blocks: Blocks) -> None:
        self.gang = gang

    def close(self) -> None:
        """Leave everything in good order."""
