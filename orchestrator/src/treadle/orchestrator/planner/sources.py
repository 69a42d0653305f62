"""Feeds from sources outside the workflow: files, literal items, ranges, events."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from treadle.dsl.expressions import ExpressionError, evaluate, parse, paths
from treadle.dsl.model import Batch, EventRange, Items, Offsets, Range, Source
from treadle.dsl.templates import render, template_paths
from treadle.dsl.validation.inputs import source_of
from treadle.executors.program import EventSplit
from treadle.primitives.errors import UsageError
from treadle.primitives.events import offset_ranges
from treadle.primitives.formats import FileSplit, ReadOptions, plan_splits
from treadle.primitives.result import is_storable
from treadle.primitives.shuffling.partitioning import DEFAULT_PARTITIONS, split_evenly
from treadle.primitives.stores.input_files import FileInfo, absolute_uri, list_files

from ..plan.plan import EventsFeed, Feed, FilesFeed, ItemsFeed, RangeFeed

EVENTS_EACH = 5_000
EVENT_BYTES_EACH = 8 * 2**20
"""Maximum of records and of their bytes in one partition of a range of events. `batch` may lower it."""


MOST_PARTITIONS = 1_000_000
"""Maximum of partitions in a stage, since the driver holds each in memory and records it."""

T = TypeVar("T")


class Sources:
    """Resolves sources once: globs to a listing, templates to values."""

    excuse: tuple[str, ...] = ()
    """Reasons why the sources of the current stage need not exist. Empty: they must."""

    def __init__(self, env: Mapping[str, Any], base: Path, assumed_bytes: int = 0) -> None:
        """`assumed_bytes`: the assumed size of each source of files, which are then not listed. 0: files are listed."""
        self._env, self._base, self._assumed_bytes = env, base, assumed_bytes
        self._listings: dict[str, list[FileInfo]] = {}

    @contextmanager
    def excusing(self, *reasons: str) -> Iterator[None]:
        """Within this context numbers, lists and files may be missing, if there is a reason now or from an outer
        context."""
        before, self.excuse = self.excuse, self.excuse or reasons
        try:
            yield
        finally:
            self.excuse = before

    def if_there(self, find: Callable[[], T], instead: T) -> T:
        """The result of `find`, or `instead` for a missing value that may be missing. Raises UsageError."""
        try:
            return find()
        except UsageError:
            if not self.excuse:
                raise
            return instead

    def count(self, value: int | str, least: int = 1) -> int:
        """The number of a literal or a template. Raises UsageError for a number below `least`."""
        return self.if_there(lambda: self._count(value, least), least)

    def _count(self, value: int | str, least: int) -> int:
        found = self._worth(value)
        if isinstance(found, bool) or not isinstance(found, int):
            raise UsageError(f"{value} gives {found!r}, and a whole number is needed here", "Give a number.")
        if not is_storable(found):
            raise UsageError(f"{value} gives a number of more than 64 bits", "Give a smaller number.")
        if found < least:
            raise UsageError(f"{value} gives {found}, and at least {least} is needed here", "Give a larger number.")
        return found

    def partitions(self, value: int | str) -> int:
        """Like `count`, for partitions. Raises UsageError for more than MOST_PARTITIONS."""
        return self.if_there(lambda: few_enough(self._count(value, 1)), 1)

    def text(self, value: str) -> str:
        """The text with its templates rendered. Raises UsageError when the result is empty or null."""
        found = self._worth(value)
        if not isinstance(found, str) or not found:
            raise UsageError(f"{value} gives {found!r}, and a text is needed here", "Give the input a value.")
        return found

    def _worth(self, value: int | str) -> Any:
        """The value of a template. Raises UsageError, which names the inputs without a value."""
        try:
            return render(value, self._env)
        except ExpressionError as error:
            read = sorted({path[1] for path in template_paths(value) if path[0] == "inputs"})
            missing = " ".join(f"-i {name}=..." for name in read if self._env["inputs"].get(name) is None)
            raise UsageError(f"{value}: {error.message}", f"Give it: {missing}" if missing else error.hint) from error

    def is_false(self, condition: str) -> bool:
        """Returns whether inputs and run alone make the condition false."""
        expression = parse(condition)
        if not {path[0] for path in paths(expression)} <= self._env.keys():
            return False
        try:
            return evaluate(expression, self._env) is False
        except ExpressionError:  # the run will report the error
            return False

    def gives_events(self, name: str) -> bool:
        """Returns whether the value of an input is a range of events."""
        value = self._env["inputs"].get(name)
        return value is not None and isinstance(source_of(value), EventRange)

    def dataset_input(self, name: str) -> Source | Items | Range | EventRange:
        """The value of a workflow input of type dataset or list. Raises UsageError for one without a value."""
        value = self._env["inputs"].get(name)
        if value is None:
            raise UsageError(f"the input {name!r} has no value, and a stage reads it", f"Give it: -i {name}=...")
        return source_of(value)

    def feed(self, given: str | Source | Items | Range | EventRange) -> tuple[Feed, int, int]:
        """(feed, partitions, estimated bytes) of a source, or of `inputs.x`. Raises UsageError."""
        nothing: tuple[Feed, int, int] = RangeFeed(0, 1), 1, 0
        return self.if_there(lambda: self._feed(given), nothing)

    def _feed(self, given: str | Source | Items | Range | EventRange) -> tuple[Feed, int, int]:
        source = self.dataset_input(given.removeprefix("inputs.")) if isinstance(given, str) else given
        if isinstance(source, Source):
            return self._files(source)
        if isinstance(source, EventRange):
            return events_feed(source.kafka)
        if isinstance(source, Items):
            parts = self._partitions(source.partitions, len(source.items))
            bounds = tuple(split_evenly(len(source.items), parts))
            return ItemsFeed(tuple(source.items), bounds), parts, 100 * len(source.items)
        total = self.count(source.range, 0)
        parts = self._partitions(source.partitions, total)
        return RangeFeed(total, parts), parts, 16 * total

    def _partitions(self, given: int | str | None, records: int) -> int:
        return self.partitions(given) if given is not None else max(1, min(records, DEFAULT_PARTITIONS))

    def _files(self, source: Source) -> tuple[Feed, int, int]:
        uri = self.text(source.uri)
        if self._assumed_bytes:
            return self._assumed(source, absolute_uri(uri, self._base))
        if uri not in self._listings:
            self._listings[uri] = list_files(uri, self._base)
        splits = tuple(
            split
            for info in self._listings[uri]
            for split in plan_splits(info, self._options(source, info), source.split)
        )
        return FilesFeed(splits), len(splits), sum(info.size for info in self._listings[uri])

    def _assumed(self, source: Source, uri: str) -> tuple[Feed, int, int]:
        """The longest permitted splits of a file that does not exist."""
        info = FileInfo(uri, self._assumed_bytes, "assumed")
        options = self._options(source, info)
        step = source.split // (options.record_bytes or 1) * (options.record_bytes or 1) or options.record_bytes
        starts = range(0, info.size, step)
        splits = tuple(
            FileSplit(uri, start, min(start + step, info.size), info.size, info.version, options) for start in starts
        )
        return FilesFeed(splits), len(splits), info.size

    def _options(self, source: Source, info: FileInfo) -> ReadOptions:
        packed = source.compression == "gzip" or (source.compression == "auto" and info.uri.endswith(".gz"))
        record_bytes = self.count(source.record_bytes) if source.record_bytes is not None else 0
        return ReadOptions(source.format, record_bytes, source.header, source.delimiter, packed, source.table)


def events_feed(kafka: Offsets) -> tuple[Feed, int, int]:
    """(feed, partitions, estimated bytes) of a range of events. Partitions are few, since each needs its own
    consumer."""
    fields = kafka.model_dump(exclude={"size"})
    split = EventSplit(**{**fields, "runs": tuple(kafka.runs)})
    total = offset_ranges.count(kafka.runs)
    parts = min(total, DEFAULT_PARTITIONS, max(-(-total // EVENTS_EACH), -(-kafka.size // EVENT_BYTES_EACH), 1))
    return EventsFeed(split, tuple(split_evenly(total, parts))), parts, kafka.size


def batched(feed: Feed, batch: Batch, count: Callable[[int | str], int]) -> tuple[Feed, int] | None:
    """(the feed cut again at plan time, its partitions). None: the cut depends on the data."""
    if batch.max_bytes is not None or batch.max_items is None:
        return None
    longest = count(batch.max_items)
    if isinstance(feed, RangeFeed):
        sizes = (stop - start for start, stop in split_evenly(feed.count, feed.partitions))
        return RangeFeed(feed.count, feed.partitions, longest), few_enough(sum(max(1, -(-n // longest)) for n in sizes))
    if isinstance(feed, EventsFeed):
        runs = cut_runs(feed.bounds, longest)
        return EventsFeed(feed.split, tuple(runs)), len(runs)
    if isinstance(feed, ItemsFeed):
        runs = cut_runs(feed.bounds, longest)
        return ItemsFeed(feed.items, tuple(runs)), len(runs)
    return None


def few_enough(partitions: int) -> int:
    """Returns the number. Raises UsageError beyond MOST_PARTITIONS."""
    if partitions > MOST_PARTITIONS:
        text = f"{partitions:,} partitions of one stage are too many: there may be {MOST_PARTITIONS:,}"
        raise UsageError(text, "Give fewer `partitions`, or a larger `batch`: each may hold any number of records.")
    return partitions


def cut_runs(runs: Sequence[tuple[int, int]], longest: int) -> list[tuple[int, int]]:
    """Cut each run into runs of at most `longest`. An empty run stays. 0: no cut."""
    if not longest:
        return list(runs)
    return [
        (start, min(start + longest, stop))
        for first, stop in runs
        for start in (range(first, stop, longest) if stop > first else (first,))
    ]
