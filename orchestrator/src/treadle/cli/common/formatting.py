"""Formats numbers and times for the user."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from treadle.orchestrator.telemetry.logs import printable


def size(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 10 else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def number(count: int) -> str:
    return f"{count:,}"


def span(seconds: float) -> str:
    """`0.8 s`, `12 s`, `3 min 20 s`, `2 h 5 min`, `3 d 4 h`."""
    if seconds < 10:
        return f"{max(0.0, seconds):.1f} s"
    whole = round(seconds)
    for unit, below, words in ((86_400, "h", "d"), (3600, "min", "h"), (60, "s", "min")):
        if whole >= unit:
            inner = {"h": 3600, "min": 60, "s": 1}[below]
            rest = whole % unit // inner
            return f"{whole // unit} {words}" + (f" {rest} {below}" if rest else "")
    return f"{whole} s"


def moment(when: datetime | float | None) -> str:
    """Local time, to the second. A number is seconds since the epoch; 0 gives an empty text."""
    return _time(when).astimezone().strftime("%Y-%m-%d %H:%M:%S") if when else ""


def stamp(when: datetime | float | None) -> str | None:
    """RFC 3339 in UTC, for programs."""
    return _time(when).astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z") if when else None


def _time(when: datetime | float) -> datetime:
    return when if isinstance(when, datetime) else datetime.fromtimestamp(when, UTC)


def counted(count: int, noun: str) -> str:
    return f"{count:,} {noun if count == 1 else noun + 's'}"


def node(name: str, stages: Sequence[str]) -> str:
    """The stages of a plan's node: `tokenize, group`. If a stage has several nodes, their role is added: `sorted
    (cuts)`."""
    owner, _, role = name.partition(".")
    names = ", ".join(stages) or owner
    return f"{names} ({role})" if role else names


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """The rows as lines, in columns of the necessary width. Columns without content are omitted."""
    rows = [[printable(cell) for cell in row] for row in rows]
    used = [index for index in range(len(rows[0])) if any(row[index] for row in rows[1:])]
    widths = [max(len(row[index]) for row in rows) for index in used]
    return [
        "  ".join(row[index].ljust(width) for index, width in zip(used, widths, strict=True)).rstrip() for row in rows
    ]
