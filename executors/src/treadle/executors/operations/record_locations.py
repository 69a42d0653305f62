"""The locations of an attempt's records: in their partition, under their key, in their file."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from operator import length_hint
from typing import TYPE_CHECKING, Any

import msgspec

from treadle.primitives.errors import TreadleError
from treadle.primitives.formats import FileSplit
from treadle.primitives.record_location import RecordPlace, key_text
from treadle.primitives.shuffling.folds import NOTHING

from ..program import MapPartition, MapRecords, Op, Partition, Program

if TYPE_CHECKING:
    from treadle.primitives.formats.record_location import Locator


class Cursor:
    """The record that a stage's function is processing. It is set for each batch or key; the position is computed on
    access."""

    __slots__ = ("_batch", "key")

    def __init__(self) -> None:
        self.key: Any = None
        self._batch: tuple[int, int, Iterator[Any]] | None = None

    def enter(self, start: int, size: int, rest: Iterator[Any]) -> None:
        """A batch of `size` records starts at position `start`; `rest` iterates over the records not taken yet."""
        self._batch = start, size, rest

    @property
    def position(self) -> int | None:
        if self._batch is None:
            return None
        start, size, rest = self._batch
        return start + size - length_hint(rest) - 1


class RecordLocations:
    """The places of the records in the inputs of an attempt's stages."""

    def __init__(self, program: Program, partition: Partition, set_aside: Callable[[str], Collection[int]]) -> None:
        """`set_aside`: stage -> positions of its failed and tolerated records."""
        self._ops, self._partition, self._set_aside = program.ops, partition, set_aside
        self._cursors: dict[str, Cursor] = {}
        self._locator: Locator | None = None

    def cursor(self, stage: str) -> Cursor:
        return self._cursors.setdefault(stage, Cursor())

    def current(self, stage: str) -> RecordPlace:
        """The record that the stage's function is processing. Raises the errors of reading its file."""
        cursor = self.cursor(stage)
        return msgspec.structs.replace(self.of(stage, cursor.position), key=cursor.key)

    def of(self, stage: str, position: int | None) -> RecordPlace:
        """A record in the input of a stage, including its file if the stage is a map that reads files itself."""
        first = self._ops[0] if self._ops else None
        if isinstance(first, MapRecords | MapPartition) and first.stage == stage:
            found = self._in_file(position)
            if found is not None:
                return found
        return RecordPlace(position)

    def text(self, stage: str, position: int | None, key: Any = NOTHING) -> str:
        """A readable location of a failed record, using its file or key, even if an earlier stage of the attempt read
        the file."""
        if key is not NOTHING:
            return key_text(key)
        try:
            found = self._in_file(self._origin(stage, position))
        except TreadleError:  # the failure counts, not the missing file
            found = None
        return found.text if found is not None else ""

    def _in_file(self, position: int | None) -> RecordPlace | None:
        split = self._partition.input
        if not isinstance(split, FileSplit):
            return None
        if self._locator is None:
            from treadle.primitives.formats.record_location import Locator

            self._locator = Locator(split)
        return self._locator.place(position)

    def _origin(self, stage: str, position: int | None) -> int | None:
        """The position among the records read; None: an earlier stage does not map one record to one."""
        names = [op.stage for op in self._ops]
        before = self._ops[: names.index(stage)] if stage in names else self._ops
        for op in reversed(before):
            if position is None or not _is_one_to_one(op):
                return None
            position = _before_setting_aside(position, self._set_aside(op.stage))
        return position


def _is_one_to_one(op: Op) -> bool:
    return isinstance(op, MapRecords) and not op.flat


def _before_setting_aside(position: int, failed: Collection[int]) -> int:
    """Convert a position in a stage's output to its input, given that the records at `failed` produced no output."""
    for one in sorted(failed):
        if one > position:
            break
        position += 1
    return position
