"""Copies of memory that a keeper has, which processes keep equal by lazy release consistency, as in TreadMarks
(Keleher, Cox, Dwarkadas and Zwaenepoel, USENIX 1994): changes travel when a process publishes and another refreshes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

from .catalog.memory import PAGE_BYTES, PAGES_OF_CALL, SharedAreas, page_of
from .handle import Handle


class Area:
    """The copy of one area of memory, as an array of bytes, and the bytes that the keeper is known to have."""

    def __init__(self, copy: Any) -> None:
        import numpy as np

        self._copy, self._known = copy, np.zeros_like(copy)

    def changes(self) -> Iterator[tuple[int, bytes, bytes]]:
        """Yield each changed page: its number, a bit for each byte, and the changed bytes."""
        import numpy as np

        for page in range(-(-len(self._copy) // PAGE_BYTES)):
            known, now = page_of(self._known, page), page_of(self._copy, page).copy()
            changed = now != known
            if changed.any():
                known[:] = now
                yield page, np.packbits(changed).tobytes(), now[changed].tobytes()

    def take(self, page: int, data: bytes) -> None:
        """Take the changes of others. Own changes of other bytes stay."""
        import numpy as np

        known, found = page_of(self._known, page), np.frombuffer(data, np.uint8)
        changed = np.flatnonzero(found != known)
        page_of(self._copy, page)[changed] = found[changed]
        known[:] = found


class AreaCopies:
    """The copies that this process has of one memory."""

    def __init__(self, memory: Handle[SharedAreas]) -> None:
        self._memory, self._version = memory, 0
        self._areas: dict[int, Area] = {}
        self.unused: deque[Area] = deque()
        """Areas that this process no longer has, but may have changed."""

    def add(self, number: int, area: Area) -> None:
        """Fetch an area, and follow it from now on."""
        self._fetch(0, {number: area})
        self._areas[number] = area

    def publish(self) -> bool:
        """Send all changes; returns whether there were any."""
        unused = [self.unused.popleft() for _ in range(len(self.unused))]
        found = [(number, *change) for number, area in self._areas.items() for change in area.changes()]
        for first in range(0, len(found), PAGES_OF_CALL):
            before, after = self._memory.push(found[first : first + PAGES_OF_CALL])
            if before == self._version:
                self._version = after
        if unused:
            self._areas = {number: area for number, area in self._areas.items() if area not in unused}
        return bool(found)

    def refresh(self) -> bool:
        """Fetch all changes; returns whether there were any."""
        before, self._version = self._version, self._fetch(self._version, self._areas)
        return before != self._version

    def _fetch(self, version: int, areas: dict[int, Area]) -> int:
        while areas:
            version, pages = self._memory.pull(version, list(areas))
            for number, page, data in pages:
                areas[number].take(page, data)
            if len(pages) < PAGES_OF_CALL:
                break
        return version
