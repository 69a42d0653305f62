"""Comparison of replicas by digests of their objects, which finds classes that are not deterministic."""

from __future__ import annotations

from .state import State
from .values import DIGEST_BYTES

_KEPT = 4
"""Digests that wait for the digests of backups."""


class ReplicaComparison:
    """The digests of a primary, by the entry after which they were computed."""

    def __init__(self) -> None:
        self._digests: dict[int, bytes] = {}

    def note(self, index: int, digests: bytes) -> None:
        self._digests[index] = digests
        while len(self._digests) > _KEPT:
            del self._digests[next(iter(self._digests))]

    def unequal(self, index: int, digests: bytes, state: State) -> list[str]:
        """Return the names of the objects whose digests at a backup differ after this entry."""
        own = self._digests.get(index, digests)
        pairs = zip(_divided(own), _divided(digests), strict=False)
        return [name for name, (one, other) in zip(state.objects, pairs, strict=False) if one != other]


def _divided(joined: bytes) -> list[bytes]:
    return [joined[start : start + DIGEST_BYTES] for start in range(0, len(joined), DIGEST_BYTES)]
