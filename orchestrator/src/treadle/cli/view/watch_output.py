"""The display of a watched run: a live table on a terminal, plain lines elsewhere, JSON lines for programs."""

from __future__ import annotations

import json
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from treadle.client.progress import StageView
from treadle.orchestrator.telemetry.logs import printable

from ..common import formatting
from ..common.exit_codes import complain

if TYPE_CHECKING:
    from rich.console import RenderableType

    from treadle.orchestrator.dispatcher.orders import Progress
    from treadle.orchestrator.run_requests.run_views import RunView

_MARKS = {
    "waiting": ("·", "dim"),
    "running": ("●", "cyan"),
    "stopped": ("■", "yellow"),
    "failed": ("✗", "red"),
    "done": ("✓", "green"),
    "skipped": ("-", "dim"),
}


class Screen(ABC):
    """The display of one run. Lines beside it go to stderr."""

    @abstractmethod
    def show(self, view: RunView, stages: Sequence[StageView], cost: str = "") -> None:
        """Show the current run, and its cost so far if it has a price."""

    def note(self, text: str) -> None:
        """Print a permanent line."""
        complain(text)

    def log(self, line: str) -> None:
        """Print a line of an attempt's log, which starts with its own time."""
        complain(line)

    def close(self) -> None:  # noqa: B027  # most displays change nothing
        """Restore the terminal."""


def label(stage: StageView) -> str:
    """The names of its stages, or the node with its child run."""
    return f"{stage.node} → {stage.run}" if stage.run else formatting.node(stage.node, stage.stages)


def counts(stage: StageView) -> str:
    """`3/8`, or the iterations of a loop."""
    if stage.kind == "loop":
        count = stage.iteration.rpartition(" ")[2]
        if not count or "/" in count:
            return f"iteration {count}" if count else ""
        return formatting.counted(int(count), "iteration")
    if stage.kind == "barrier" or not stage.partitions:
        return ""
    return f"{stage.committed}/{stage.partitions}"


def troubles(stage: StageView) -> str:
    parts = [f"{stage.failed} failed" if stage.failed else "", f"{stage.retried} retried" if stage.retried else ""]
    parts.append(f"{formatting.counted(stage.failed_items, 'record')} failed" if stage.failed_items else "")
    parts.append(f"attempt {stage.attempt} of its driver" if stage.attempt > 1 else "")
    return ", ".join(filter(None, parts))


def volume(stage: StageView) -> str:
    rows = formatting.counted(stage.rows, "row") if stage.rows else ""
    origin = f"from run {stage.origin}" if stage.origin else ""
    return ", ".join(filter(None, [rows, formatting.size(stage.bytes) if stage.bytes else "", origin]))


def exchange(stage: StageView) -> str:
    """The planned destination of its blocks with the predicted bytes, its reads by source, and its spilled bytes."""
    planned = f"to {stage.place}, {formatting.size(stage.estimate)} predicted" if stage.place else ""
    read = ", ".join(f"{formatting.size(size)} {place}" for place, size in stage.read.items())
    spilled = f"{formatting.size(stage.spilled)} spilled" if stage.spilled else ""
    return "; ".join(filter(None, [planned, f"read {read}" if read else "", spilled]))


class Pace:
    """Estimates the remaining time of a stage from its speed since it was first seen running."""

    def __init__(self) -> None:
        self._first: dict[str, tuple[float, int]] = {}

    def left(self, stage: StageView, now: float) -> float | None:
        """Seconds; None if unknown."""
        if stage.state != "running":
            self._first.pop(stage.node, None)
            return None
        since, before = self._first.setdefault(stage.node, (now, stage.committed))
        done = stage.committed - before
        if done <= 0 or now <= since:
            return None
        return (stage.partitions - stage.committed) * (now - since) / done


class PlainScreen(Screen):
    """Prints a line for every change."""

    def __init__(self, compact: bool) -> None:
        self._compact = compact
        self._last: dict[str, str] = {}
        self._cost = ""

    def show(self, view: RunView, stages: Sequence[StageView], cost: str = "") -> None:  # noqa: ARG002
        for stage in stages:
            line = plain_line(stage)
            finished = self._compact and stage.state != "running"
            if line and line != self._last.get(stage.node) and not finished:
                self.note(line)
            self._last[stage.node] = line
        if cost and cost != self._cost:
            self._cost = cost
            self.note(f"cost so far: {cost}")

    def note(self, text: str) -> None:
        complain(f"{time.strftime('%H:%M:%S')} {text}")


def plain_line(stage: StageView) -> str:
    """One line for a running or finished stage; empty for a waiting one."""
    if stage.state == "waiting" and not stage.committed:
        return ""
    inner = "; ".join(f"{one.segment} {one.committed}/{one.partitions}" for one in stage.inner)
    about = [counts(stage), inner, volume(stage), troubles(stage)]
    return f"{label(stage)}: {stage.state} {', '.join(filter(None, about))}".rstrip()


class JsonScreen(Screen):
    """Prints one JSON object per line to stdout: `progress` for every change; the watcher adds `end`."""

    def __init__(self) -> None:
        self._last: Any = None

    def show(self, view: RunView, stages: Sequence[StageView], cost: str = "") -> None:
        now = {"run": view.run, "state": view.state, "stages": msgspec.to_builtins(list(stages)), "cost": cost or None}
        if now != self._last:
            self._last = now
            emit({"type": "progress", **now})


def emit(event: dict[str, Any]) -> None:
    """Print a line of JSON to stdout."""
    sys.stdout.write(json.dumps({"time": round(time.time(), 3), **event}, ensure_ascii=False) + "\n")
    sys.stdout.flush()


class LiveScreen(Screen):
    """A table that is redrawn in place."""

    def __init__(self, compact: bool) -> None:
        from rich.console import Console

        from .live_terminal import Redrawn

        self._compact = compact
        self._pace = Pace()
        self._console = Console(stderr=True, highlight=False)
        self._live = Redrawn(self._console)
        self._live.start()

    def show(self, view: RunView, stages: Sequence[StageView], cost: str = "") -> None:
        self._live.show(picture(view, stages, self._pace, time.time(), self._compact, cost))

    def note(self, text: str) -> None:
        self._console.print(printable(text), markup=False, soft_wrap=True)

    def log(self, line: str) -> None:
        self.note(line)

    def close(self) -> None:
        self._live.stop()


def picture(
    view: RunView, stages: Sequence[StageView], pace: Pace, now: float, compact: bool = False, cost: str = ""
) -> RenderableType:
    """The run as a table; `now` in seconds since the epoch."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    for stage in stages:
        if compact and stage.state != "running":
            continue
        table.add_row(*_row(stage, pace.left(stage, now)))
        for one in stage.inner:
            committed = f"{one.committed}/{one.partitions}"
            table.add_row("", f"  {one.segment}", _bar(one), committed, formatting.size(one.size))
    spent = f", {cost} so far" if cost else ""
    return Group(Text.assemble((view.run, "bold"), f"  {view.state}, {_time(view, now)}{spent}"), table)


def _time(view: RunView, now: float) -> str:
    """The time since its start, or of its start, and the resumption."""
    again = f", resumption {view.resumption}" if view.resumption > 1 else ""
    if view.due:
        return f"starts {formatting.moment(view.due)}{again}"
    until = view.closed.timestamp() if view.closed else now
    return f"{formatting.span(until - view.started.timestamp())}{again}"


def _row(stage: StageView, left: float | None) -> list[Any]:
    from rich.text import Text

    mark, style = _MARKS[stage.state]
    waits = f"about {formatting.span(left)} left" if left is not None else ""
    about = ", ".join(filter(None, [volume(stage), waits]))
    # Names of stages are never truncated, because they may differ only at the end. Run ids are.
    overflow: Literal["ellipsis", "fold"] = "ellipsis" if stage.run else "fold"
    name = Text(label(stage), style if stage.state in ("waiting", "skipped") else "", overflow=overflow)
    return [Text(mark, style), name, _bar(stage), counts(stage), about, Text(troubles(stage), "yellow")]


def _bar(stage: StageView | Progress) -> Any:
    from .live_terminal import Bar

    if not stage.partitions or getattr(stage, "kind", "segment") == "barrier":
        return ""
    return Bar(stage.committed, stage.partitions)
