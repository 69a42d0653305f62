"""Reads inputs of stages as datasets."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from treadle.primitives.errors import UsageError
from treadle.primitives.formats import FileSplit, ReadOptions
from treadle.primitives.shuffling.partitioning import DEFAULT_PARTITIONS, split_evenly
from treadle.primitives.stores.input_files import FileInfo, list_files

from ..model import EventRange, Items, Range, Source
from .data import ReferencePartition
from .run import ReferenceRun


def read_source(
    source: Source | Items | Range | EventRange, run: ReferenceRun, *, tolerate: bool = False
) -> list[ReferencePartition]:
    """Return the partitions of a source; with `tolerate`, lines that cannot be parsed are among the records.

    Raises UsageError, also for events: no broker is read.
    """
    if isinstance(source, EventRange):
        raise UsageError("the reference interpreter reads no events", "Give it the records as {items: [...]}.")
    if isinstance(source, Source):
        return [_read(split) for split in _splits(source, run, tolerate)]
    if isinstance(source, Items):
        values: list[Any] = source.items
    else:
        values = list(range(run.number(source.range, 0)))
    default = max(1, min(len(values), DEFAULT_PARTITIONS))
    parts = default if source.partitions is None else run.number(source.partitions)
    return [ReferencePartition("objects", values[start:stop]) for start, stop in split_evenly(len(values), parts)]


def read_texts(source: Source, run: ReferenceRun) -> list[ReferencePartition]:
    """Return each partition as a list of one str, for `whole: true`."""
    from treadle.primitives.formats import read_text

    return [ReferencePartition("objects", [read_text(split)], split=split) for split in _splits(source, run, False)]


def _splits(source: Source, run: ReferenceRun, tolerate: bool) -> list[FileSplit]:
    from treadle.primitives.formats import plan_splits

    listing = list_files(run.fixed(source.uri), run.base)
    options = ((info, replace(_options(source, info, run), tolerate=tolerate)) for info in listing)
    return [split for info, how in options for split in plan_splits(info, how, source.split)]


def _options(source: Source, info: FileInfo, run: ReferenceRun) -> ReadOptions:
    packed = source.compression == "gzip" or (source.compression == "auto" and info.uri.endswith(".gz"))
    length = 0 if source.record_bytes is None else run.number(source.record_bytes)
    return ReadOptions(source.format, length, source.header, source.delimiter, packed, source.table)


def _read(split: FileSplit) -> ReferencePartition:
    from treadle.primitives.formats import read_split

    return ReferencePartition(*read_split(split), split=split)
