"""Records of attempts: their errors, grouped, and their output."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from treadle.executors.attempt_log import logged
from treadle.executors.failures import error_text
from treadle.orchestrator.dispatcher.ledger.attempt_records import AttemptRecord
from treadle.primitives.errors import UsageError

if TYPE_CHECKING:
    from treadle.orchestrator.plan.plan import Plan
    from treadle.orchestrator.run_store.run_files import RunFiles

_log = logging.getLogger(__name__)
SHOWN = 8
"""Maximum number of partitions and places named for each group of errors."""
_BUNDLE = re.compile(r'File "[^"]*/bundles/[0-9a-f]{64}/modules/')
"""The folder into which a worker unpacked the user's code, which is uninformative."""


class LogFollower:
    """Reads new records of a run. Objects are written once, so each is read once."""

    def __init__(self, files: RunFiles) -> None:
        self._files = files
        self._seen: set[str] = set()

    def new(self) -> list[AttemptRecord]:
        """New records, oldest first. Blocking."""

        found: list[AttemptRecord] = []
        for info in self._files.store.list(f"{self._files.prefix}/attempts"):
            if info.name not in self._seen:
                self._seen.add(info.name)
                lines = self._files.store.get(info.name).splitlines()
                found += [record for line in lines if (record := _record(line, info.name)) is not None]
        return sorted(found, key=lambda record: record.time)

    def skip(self) -> None:
        """Take the records so far as seen. Blocking."""
        self._seen.update(info.name for info in self._files.store.list(f"{self._files.prefix}/attempts"))

    def any(self) -> bool:
        """Whether the run has any records. Blocking."""
        return any(True for _ in self._files.store.list(f"{self._files.prefix}/attempts"))

    def new_lines(self) -> list[str]:
        return [line for record in self.new() for line in lines_of(record)]


def _record(line: bytes, name: str) -> AttemptRecord | None:
    """Parse one line of an object, or return None. These objects are not sealed, and a damaged line must not hide
    others."""
    import msgspec

    try:
        return msgspec.json.decode(line, type=AttemptRecord)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        _log.warning("a line of %s is no record of an attempt and is left out: %s", name, error)
        return None


class ErrorGroup(Struct, frozen=True, rename="camel"):
    """Attempts that failed in the same way."""

    stage: str
    failure: str
    error: str
    message: str
    count: int
    final: int
    """How many of them were the last attempt."""
    partitions: tuple[int, ...]
    traceback: str
    how: str
    places: tuple[str, ...] = ()
    """Files and lines, or keys, of the failed records, in the order of partitions."""

    @property
    def text(self) -> str:
        return error_text(self.error, self.message)

    @property
    def details(self) -> str:
        """More information for the user: a traceback through the user's code, or how the class was determined."""
        if self.error.startswith("treadle.") and not _BUNDLE.search(self.traceback):
            return ""
        return _BUNDLE.sub('File "', _to_user_code(self.traceback)) or f"determined by: {self.how}"


def _to_user_code(traceback: str) -> str:
    """Cut a dump of stopped threads (faulthandler's form) below the user's code, where treadle's frames start."""
    lines = traceback.splitlines()
    last = max((number for number, line in enumerate(lines) if _BUNDLE.search(line)), default=len(lines))
    return "\n".join(lines[: last + 1]) if "(most recent call first)" in traceback else traceback


def grouped(records: Iterable[AttemptRecord]) -> list[ErrorGroup]:
    """Group equal errors, the most frequent first."""
    groups: dict[tuple[str, str, str, str], list[AttemptRecord]] = {}
    for record in records:
        if record.failure:
            stage = record.stage or record.segment
            groups.setdefault((stage, record.failure, record.error, record.message), []).append(record)
    found = [_group(key, members) for key, members in groups.items()]
    return sorted(found, key=lambda group: -group.count)


def _group(key: tuple[str, str, str, str], members: Sequence[AttemptRecord]) -> ErrorGroup:
    partitions = tuple(sorted({member.partition for member in members}))
    final = sum(member.final for member in members)
    ordered = sorted(members, key=lambda member: member.partition)
    places = tuple(dict.fromkeys(member.place for member in ordered if member.place))
    return ErrorGroup(*key, len(members), final, partitions, members[-1].traceback, members[-1].how, places)


def group_lines(group: ErrorGroup) -> Iterator[str]:
    """The text of a group: error, count, places, and one traceback."""
    named = ", ".join(map(str, group.partitions[:SHOWN])) + (", ..." if len(group.partitions) > SHOWN else "")
    places = "; ".join((*group.places[:SHOWN], *(["..."] if len(group.places) > SHOWN else [])))
    often = f"{group.count} attempt{'s' if group.count != 1 else ''}, {group.final} final"
    yield f"{group.stage}: {group.failure}: {group.text}"
    yield f"  {often}; partition{'s' if len(group.partitions) != 1 else ''} {named}" + (places and f"; at {places}")
    yield from (f"  {line}" for line in group.details.rstrip().splitlines())


def lines_of(record: AttemptRecord) -> Iterator[str]:
    """The output of an attempt, then its error, line by line with time and origin. A line without its own time and
    origin gets the end of the attempt and its node. The stacks of a killed attempt are shown with its error
    (`group_lines`)."""
    when, node = record.time, f"{record.segment}[{record.partition}]"
    for line in record.log.removesuffix(record.traceback).splitlines():
        when, where, text = logged(line) or (when, node, line)
        yield f"{_clock(when)} {where}#{record.attempt} {text}"
    if record.failure:
        end = "failed finally" if record.final else "failed, will be tried again"
        why = f"{record.failure}: {error_text(record.error, record.message, record.place)}"
        yield f"{_clock(record.time)} {node}#{record.attempt} {end}: {why}"


def _clock(when: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(when))


def chosen(
    records: Iterable[AttemptRecord], segments: set[str] | None, stage: str, partition: int | None, attempt: int | None
) -> list[AttemptRecord]:
    """The records of a stage, partition and attempt; None: all."""
    from treadle.orchestrator.plan.plan import node_of

    return [
        record
        for record in records
        if (segments is None or record.stage == stage or node_of(record.segment) in segments)
        and (partition is None or record.partition == partition)
        and (attempt is None or record.attempt == attempt)
    ]


def reader(
    files: RunFiles, stage: str | None, partition: int | None, attempt: int | None
) -> Callable[[], list[AttemptRecord]]:
    """A function that returns the requested records that it has not returned before. Raises UsageError for an unknown
    stage."""
    from treadle.orchestrator.plan.plan import Plan

    follower = LogFollower(files)
    plan = files.find(Plan, "plan") if stage else None
    segments = nodes_of(plan, stage) if plan and stage else None
    if plan and not segments:
        raise UsageError(f"run {files.run} has no stage {stage}", f"See: treadle show {files.run}")
    return lambda: chosen(follower.new(), segments, stage or "", partition, attempt)


def nodes_of(plan: Plan, stage: str) -> set[str]:
    """Nodes at any depth in which a stage runs; empty: the stage does not exist. A loop runs in the nodes of its
    body."""
    from treadle.orchestrator.plan.plan import LoopNode

    named = [node for node in plan.graph.walk() if stage in (*node.stages, node.id)]
    inside = (inner for node in named if isinstance(node, LoopNode) for inner in node.body.nodes)
    return {node.id for node in (*named, *inside)}
