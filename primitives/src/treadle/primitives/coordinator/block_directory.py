"""The members that serve each block. Soft state: members announce their blocks again after every reconnect."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from .component import CoordinatorLimits, check


class BlockDirectory:
    """Blocks and the members that announced them."""

    def __init__(self, limits: CoordinatorLimits) -> None:
        self._limits = limits
        self._members: dict[str, dict[str, None]] = {}
        self._blocks: dict[str, set[str]] = {}

    def __len__(self) -> int:
        """Number of blocks that at least one member serves."""
        return len(self._members)

    def announce(self, member: str, blocks: Iterable[str]) -> None:
        """Enter blocks that the member serves. Raises Refusal and enters nothing when a limit is exceeded."""
        fresh = set(blocks) - self._blocks.get(member, set())
        longest = max(fresh, key=len, default="")
        check(len(longest) <= self._limits.name, longest, "the name is too long")
        count = len(self._blocks.get(member, ())) + len(fresh)
        check(count <= self._limits.blocks, member, f"a member may announce {self._limits.blocks} blocks")
        if fresh:
            self._blocks.setdefault(member, set()).update(fresh)
        for block in fresh:
            self._members.setdefault(block, {})[member] = None

    def withdraw(self, member: str, blocks: Iterable[str]) -> None:
        """The member no longer serves these blocks; blocks it never announced are ignored."""
        known = self._blocks.get(member, set())
        for block in known.intersection(blocks):
            known.discard(block)
            self._forget(member, block)
        if not known:
            self._blocks.pop(member, None)

    def drop(self, member: str) -> None:
        """Forget all blocks of the member: it is gone, or will announce its blocks again."""
        for block in self._blocks.pop(member, ()):
            self._forget(member, block)

    def _forget(self, member: str, block: str) -> None:
        members = self._members[block]
        del members[member]
        if not members:
            del self._members[block]

    def locate(self, block: str) -> list[str]:
        """Return members that serve the block, the latest first; at most `CoordinatorLimits.located` of them."""
        return list(islice(reversed(self._members.get(block, {})), self._limits.located))
