"""The progress of a session and the output of its calls, shown while it is open: in a terminal, or in a notebook."""

from __future__ import annotations

import html
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from treadle.executors.attempt_log import logged
from treadle.orchestrator.plan.plan import CALLS
from treadle.primitives.errors import StoreError
from treadle.primitives.stores.input_files import is_local

from .attempt_logs import LogFollower
from .futures import CallProgress

if TYPE_CHECKING:
    from treadle.orchestrator.dispatcher.ledger.attempt_records import AttemptRecord
    from treadle.orchestrator.run_store.run_files import RunFiles

_DRAW = 0.25
_READ, _REMOTE = 1.0, 5.0
"""Seconds between two looks for output: on a store of this host, and over the network."""
_LINES = 20
"""Lines shown of each look."""
_KEPT = 10
"""Lines that a notebook keeps."""
_ROWS = 8
_LAST = 2.0
"""Seconds to wait, at the end of the session, for the output of its last calls."""
_one_at_a_time = threading.Lock()

Counts = Mapping[str, CallProgress]


class SessionView(Protocol):
    """A place where progress is shown."""

    def draw(self, counts: Counts, lines: Sequence[str]) -> None:
        """Show the counts of the calls by function, and further lines of output."""

    def close(self) -> None:
        """Leave the last picture."""


def find_view() -> SessionView | None:
    """The notebook's output, or the terminal. None: neither, or Python's prompt."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if shell is not None and hasattr(shell, "kernel"):
        return NotebookView()
    draws = sys.stderr.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")
    return TerminalView() if draws and not hasattr(sys, "ps1") and shell is None else None


class SessionDisplay:
    """Draws in a thread until it is closed. Only the first of several open sessions is drawn."""

    def __init__(self, files: RunFiles, counts: Callable[[], Counts], view: SessionView) -> None:
        self._files, self._counts, self._view = files, counts, view
        self._follower = LogFollower(files)
        self._closing, self._next = threading.Event(), 0.0
        self._thread = threading.Thread(target=self._serve, name="treadle-display", daemon=True)
        self._thread.start()

    def close(self, *, ended: bool) -> None:
        """Draw the end. `ended`: the session takes no more calls, so the output of the last ones is soon complete."""
        until = time.monotonic() + _LAST
        while ended and time.monotonic() < until and not self._complete():
            time.sleep(0.02)
        self._closing.set()
        self._thread.join()

    def _complete(self) -> bool:
        with suppress(StoreError):
            return self._files.closing(CALLS) is not None
        return False

    def _serve(self) -> None:
        if not _one_at_a_time.acquire(blocking=False):
            return
        try:
            with suppress(StoreError):
                self._follower.skip()
            while not self._closing.wait(_DRAW):
                self._view.draw(self._counts(), self._lines())
            self._next = 0.0
            self._view.draw(self._counts(), self._lines())
            self._view.close()
        finally:
            _one_at_a_time.release()

    def _lines(self) -> list[str]:
        if time.monotonic() < self._next:
            return []
        self._next = time.monotonic() + (_READ if is_local(self._files.store.url) else _REMOTE)
        with suppress(StoreError):  # `treadle logs` has all of it
            lines = [line for record in self._follower.new() for line in output_lines(record)]
            more = len(lines) - _LINES
            return [*lines[:_LINES], f"... {more} more lines: treadle logs {self._files.run}"] if more > 0 else lines
        return []


def output_lines(record: AttemptRecord) -> list[str]:
    """The lines that an attempt printed, each with the id of its task."""
    origin = f"[{record.segment}/{record.partition}]"
    printed = record.log.removesuffix(record.traceback).splitlines()
    return [f"{origin} {found[2] if (found := logged(line)) else line}" for line in printed]


class TerminalView:
    """Bars on standard error, with the lines of output above them. Nothing is drawn before there is a call."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        note = TextColumn("{task.fields[note]}")
        columns = TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), note
        self._progress = Progress(
            *columns, TimeElapsedColumn(), console=Console(stderr=True), redirect_stdout=sys.stdout.isatty()
        )
        self._bars: dict[str, Any] = {}

    def draw(self, counts: Counts, lines: Sequence[str]) -> None:
        if counts:
            self._progress.start()
        for line in lines:
            self._progress.console.print(line, markup=False, highlight=False)
        for name, one in counts.items():
            if name not in self._bars:
                self._bars[name] = self._progress.add_task(name, note="")
            self._progress.update(self._bars[name], total=one.calls, completed=one.ended, note=_note(one))
        for bar in list(self._bars.values())[:-_ROWS]:
            self._progress.update(bar, visible=False)

    def close(self) -> None:
        self._progress.stop()


class NotebookView:
    """One HTML element in the output of the cell that opened the session."""

    def __init__(self) -> None:
        import IPython.display

        shown: Any = IPython.display
        self._html, self._lines = shown.HTML, list[str]()
        self._element = shown.display(shown.HTML(""), display_id=True)

    def draw(self, counts: Counts, lines: Sequence[str]) -> None:
        self._lines = [*self._lines, *lines][-_KEPT:]
        self._element.update(self._html(page(counts, self._lines)))

    def close(self) -> None:
        pass


def page(counts: Counts, lines: Sequence[str]) -> str:
    """The HTML of a notebook: a row for each function, then lines of output. Colours are the notebook's own."""
    rows = (
        f"<tr><td>{html.escape(name)}</td><td><progress max='{one.calls}' value='{one.ended}'></progress></td>"
        f"<td>{one.ended}/{one.calls}</td><td>{_note(one)}</td></tr>"
        for name, one in list(counts.items())[-_ROWS:]
    )
    output = f"<pre>{html.escape(chr(10).join(lines))}</pre>" if lines else ""
    return f"<table>{''.join(rows)}</table>{output}"


def _note(counts: CallProgress) -> str:
    parts = (f"{counts.failed} failed" * bool(counts.failed), f"{counts.running} running" * bool(counts.running))
    return ", ".join(filter(None, parts))
