"""Redraws a picture on a terminal, whose width may change in between."""

from __future__ import annotations

from itertools import chain

from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderableType, RenderResult
from rich.control import Control
from rich.live import Live
from rich.measure import Measurement
from rich.segment import ControlType, Segment
from rich.text import Text

BAR = 16
"""Maximum width in characters."""


class Bar:
    """A progress bar that shrinks on a narrow terminal."""

    def __init__(self, done: int, total: int) -> None:
        self._done, self._total = done, total

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(BAR // 4, BAR)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = min(BAR, options.max_width)
        full = width * self._done // self._total
        yield Text.assemble(("━" * full, "green"), ("━" * (width - full), "dim"))


class Drawn:
    """A picture that records the width of its lines. Trailing spaces are removed, because a terminal would wrap them
    too."""

    def __init__(self, picture: RenderableType) -> None:
        self._picture = picture
        self._widths: list[int] = []

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = [_trimmed(line) for line in console.render_lines(self._picture, options, pad=False)]
        self._widths = [Segment.get_line_length(line) for line in lines]
        if len(lines) > options.size.height:  # Live replaces the last line by dots of full width
            self._widths[options.size.height - 1 :] = [options.max_width]
        return chain.from_iterable([*line, Segment.line()] for line in lines)

    def broken(self, columns: int) -> int:
        """The number of rows beyond its lines, on a terminal with `columns` columns."""
        return sum(max(0, width - 1) // columns for width in self._widths)


class Redrawn(Live):
    """rich's Live moves the cursor up by the number of lines that it wrote. A terminal made narrower has wrapped them
    since, if it rewraps (most do: tmux, VTE, kitty, iTerm2, Windows Terminal). This class moves up further."""

    def __init__(self, console: Console) -> None:
        super().__init__(console=console, auto_refresh=False)
        self._now = self._last = Drawn("")

    def show(self, picture: RenderableType) -> None:
        """Replace the current picture."""
        self._now = Drawn(picture)
        self.update(self._now, refresh=True)

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        """Move the cursor up by the wrapped rows, and draw."""
        again = [(ControlType.CURSOR_UP, 1), (ControlType.ERASE_IN_LINE, 2)] * self._last.broken(self.console.width)
        home, *rest = super().process_renderables(renderables)
        self._last = self._now
        return [home, Control(*again), *rest]


def _trimmed(line: list[Segment]) -> list[Segment]:
    """The line without trailing spaces."""
    while line and not line[-1].text.strip():
        line.pop()
    if line:
        text, style, control = line.pop()
        line.append(Segment(text.rstrip(), style, control))
    return line
