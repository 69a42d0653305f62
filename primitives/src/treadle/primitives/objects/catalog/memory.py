"""Memory of which processes have copies."""

from __future__ import annotations

import itertools
from typing import Any

from ..definitions import read, shared

PAGE_BYTES, PAGES_OF_CALL, MEMORY_BYTES = 64 << 10, 64, 16 << 20
"""A page, the pages of a call, and the bytes of an object, all at most."""


def page_of(area: Any, page: int) -> Any:
    return area[page * PAGE_BYTES : (page + 1) * PAGE_BYTES]


@shared
class SharedAreas:
    """Areas of bytes. Each page has the version of its last change, so that a process fetches only new ones."""

    def __init__(self) -> None:
        self.areas: list[Any] = []
        self.versions: dict[tuple[int, int], int] = {}
        """Of each page, by area and number; the last change is last."""
        self.version = 0

    def add(self, size: int) -> int | None:
        """Make an area of zeros; returns its number, or None without room for it."""
        import numpy as np

        if self.areas and sum(map(len, self.areas)) + size > MEMORY_BYTES:
            return None
        self.areas.append(np.zeros(size, np.uint8))
        return len(self.areas) - 1

    def push(self, changes: list[tuple[int, int, bytes, bytes]]) -> tuple[int, int]:
        """Change pages: area, number, a bit for each byte, and the changed bytes. Returns both versions."""
        import numpy as np

        before = self.version
        for number, page, bits, data in changes:
            found = page_of(self.areas[number], page)
            changed = np.unpackbits(np.frombuffer(bits, np.uint8), count=len(found)).view(bool)
            found[changed] = np.frombuffer(data, np.uint8)
            self.versions.pop((number, page), None)
            self.version += 1
            self.versions[number, page] = self.version
        return before, self.version

    @read
    def pull(self, version: int, areas: list[int]) -> tuple[int, list[tuple[int, int, bytes]]]:
        """Return a newer version, and the pages of these areas that changed until then: area, number, bytes."""
        newer = itertools.takewhile(lambda item: item[1] > version, reversed(self.versions.items()))
        found = [(changed, *place) for place, changed in newer if place[0] in areas][: -PAGES_OF_CALL - 1 : -1]
        pages = [(number, page, page_of(self.areas[number], page).tobytes()) for _, number, page in found]
        return found[-1][0] if len(found) == PAGES_OF_CALL else self.version, pages
