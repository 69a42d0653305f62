"""A sequence on disk, for picking a few items of very many."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Any, overload

from .memory_budget import Extent, MemoryBudget


class SpilledSequence(Sequence[Any]):
    """The items of several lists. Access to neighbouring items one after the other is fast."""

    def __init__(self, room: MemoryBudget, pieces: Iterable[list[Any]]) -> None:
        """Raises DataError for items that cannot be pickled."""
        self._file = room.file()
        self._extents: list[Extent] = []
        self._starts: list[int] = []
        self._count = 0
        for piece in pieces:
            if piece:
                self._starts.append(self._count)
                self._extents.append(self._file.put(piece))
                self._count += len(piece)
        self._near: tuple[int, list[Any]] = (-1, [])

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(self._count))]
        place = index + self._count if index < 0 else index
        if not 0 <= place < self._count:
            raise IndexError(index)
        number = bisect_right(self._starts, place) - 1
        if self._near[0] != number:
            self._near = (number, self._file.get(self._extents[number]))
        return self._near[1][place - self._starts[number]]
