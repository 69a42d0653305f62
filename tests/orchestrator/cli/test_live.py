"""A watched run is redrawn in place, even after the terminal has become narrower or wider."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console, Group
from rich.style import Style
from rich.text import Text

from treadle.cli.view.live_terminal import BAR, Bar, Redrawn

CODES = re.compile(r"\x1b\[(?P<count>\d*)(?P<code>[A-Za-z])|\x1b\[\?25[lh]|(?P<text>[^\x1b])")


class Screen:
    """A terminal that wraps its lines again when its width changes, as tmux does."""

    def __init__(self, columns: int) -> None:
        self.columns = columns
        self.rows = [""]
        self.goes_on = [False]
        """For each row: true if it wraps into the next."""
        self.row = self.column = 0
        self.file = io.StringIO()
        self.console = Console(
            file=self.file, force_terminal=True, width=columns, height=99, color_system=None, _environ={"TERM": "xterm"}
        )

    def resize(self, columns: int) -> None:
        before = sum(not goes_on for goes_on in self.goes_on[: self.row])
        first = self.row
        while first and self.goes_on[first - 1]:
            first -= 1
        column = sum(len(row) for row in self.rows[first : self.row]) + self.column
        lines = [""]
        for row, goes_on in zip(self.rows, self.goes_on, strict=True):
            lines[-1] += row
            lines += [] if goes_on else [""]
        self.columns = self.console.width = columns
        self.rows, self.goes_on = [], []
        for number, line in enumerate(lines[:-1]):
            pieces = [line[at : at + columns] for at in range(0, len(line), columns)] or [""]
            if number == before:
                self.row = len(self.rows) + min(column // columns, len(pieces) - 1)
                self.column = column - columns * (self.row - len(self.rows))
            self.rows += pieces
            self.goes_on += [True] * (len(pieces) - 1) + [False]

    def take(self) -> None:
        """Process the output since the last call."""
        for found in CODES.finditer(self.file.getvalue()):
            if found["text"]:
                self._write(found["text"])
            elif found["code"] == "A":
                self.row = max(0, self.row - int(found["count"] or 1))
            elif found["code"] == "K":
                self.rows[self.row], self.goes_on[self.row] = "", False
        self.file.seek(0)
        self.file.truncate()

    def _write(self, char: str) -> None:
        if char == "\r":
            self.column = 0
        elif char == "\n":
            self._next_row()
        else:
            if self.column == self.columns:
                self.goes_on[self.row] = True
                self._next_row()
            row = self.rows[self.row].ljust(self.column)
            self.rows[self.row] = row[: self.column] + char + row[self.column + 1 :]
            self.column += 1

    def _next_row(self) -> None:
        self.row, self.column = self.row + 1, 0
        if self.row == len(self.rows):
            self.rows.append("")
            self.goes_on.append(False)


def picture(widths: Sequence[int]) -> Group:
    """A line of each width. rich wraps lines that are too long; blanks follow, as in a table."""
    return Group(*(Text("abcdefghij"[number % 10] * width + "  ") for number, width in enumerate(widths)))


WIDTHS = st.lists(st.integers(1, 60), min_size=1, max_size=5)
COLUMNS = st.integers(8, 70)


@given(st.lists(st.tuples(COLUMNS, WIDTHS), min_size=1, max_size=5))
def test_live_table_erases_its_last_drawing(steps: list[tuple[int, list[int]]]) -> None:
    screen = Screen(40)
    screen.console.print("run r")
    drawn = Redrawn(screen.console)
    drawn.start()
    for columns, widths in steps:
        screen.take()
        screen.resize(columns)
        drawn.show(picture(widths))
    screen.console.print("a note", soft_wrap=True)
    drawn.stop()
    screen.take()
    columns, widths = steps[-1]
    fresh = Screen(columns)
    fresh.console.print("run r")
    fresh.console.print("a note", soft_wrap=True)
    fresh.console.print(picture(widths))
    fresh.take()
    assert [row.rstrip() for row in screen.rows if row.strip()] == [row.rstrip() for row in fresh.rows if row.strip()]


@given(st.integers(1, 60), st.integers(0, 50), st.integers(1, 50))
def test_bar_is_as_full_as_the_stage_however_narrow_the_terminal(columns: int, done: int, total: int) -> None:
    done = min(done, total)
    console = Console(file=io.StringIO(), width=columns)
    width = min(BAR, columns)
    (line,) = console.render_lines(Bar(done, total), pad=False)
    bar = [(segment.text, segment.style) for segment in line if segment.text]
    assert "".join(text for text, _ in bar) == "━" * width
    assert sum(len(text) for text, style in bar if style == Style.parse("green")) == width * done // total
