"""Parses cron expressions as Temporal's Schedules accept them, strictly, with the position of each error.

Five fields (minute, hour, day of month, month, day of week), each `*`, `n`, `a-b`, `*/n`, `a-b/n` or a list of these;
months and weekdays also by name; or one of `@hourly @daily @midnight @weekly @monthly @yearly @annually`.
https://docs.temporal.io/schedule#cron-expressions
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

_ALIASES = {"@hourly": "0 * * * *", "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@weekly": "0 0 * * 0"}
_ALIASES |= {"@monthly": "0 0 1 * *", "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *"}
_MONTHS = {"JAN": 1, "FEB": 2, "MAR": 3, "APR": 4, "MAY": 5, "JUN": 6}
_MONTHS |= {"JUL": 7, "AUG": 8, "SEP": 9, "OCT": 10, "NOV": 11, "DEC": 12}
_DAYS = {"SUN": 0, "MON": 1, "TUE": 2, "WED": 3, "THU": 4, "FRI": 5, "SAT": 6}
_LENGTHS = {2: 29, 4: 30, 6: 30, 9: 30, 11: 30}
_PART = re.compile(r"(\*|[A-Za-z0-9]{1,9}(?:-[A-Za-z0-9]{1,9})?)(?:/([0-9]{1,9}))?")


class _Field(NamedTuple):
    words: str
    least: int
    most: int
    names: Mapping[str, int]


_FIELDS = (
    _Field("minute", 0, 59, {}),
    _Field("hour", 0, 23, {}),
    _Field("day of the month", 1, 31, {}),
    _Field("month", 1, 12, _MONTHS),
    _Field("day of the week", 0, 7, _DAYS),
)


class CronError(ValueError):
    """An error in characters `start` to `stop`, with the remedy."""

    def __init__(self, message: str, start: int, stop: int, hint: str = "") -> None:
        super().__init__(message)
        self.start, self.stop, self.hint = start, stop, hint


def parse_cron(text: str) -> tuple[frozenset[int], ...]:
    """Return the allowed values of the five fields (day of the week: 0 and 7 are Sunday).

    Raises CronError, also for impossible dates (30 February) and for days that are restricted twice.
    """
    text = _ALIASES.get(text.strip(), text)
    fields = list(re.finditer(r"\S+", text))
    if text.lstrip().startswith(("@", "CRON_TZ=", "TZ=")):
        hint = "the zone is its own key, `timezone`; for every so often there is `interval`"
        raise CronError(f"there is no '{fields[0].group()}'", *fields[0].span(), hint)
    if len(fields) != len(_FIELDS):
        hint = "minute, hour, day of the month, month, day of the week: `0 2 * * *` is every day at 2:00"
        raise CronError(f"a cron expression has 5 fields, and this has {len(fields)}", 0, len(text), hint)
    values = tuple(_values(match.group(), match.start(), field) for match, field in zip(fields, _FIELDS, strict=True))
    _check_days(text, fields, values)
    return values


def _values(text: str, offset: int, field: _Field) -> frozenset[int]:
    found: set[int] = set()
    for part in text.split(","):
        found |= _part(part, offset, field)
        offset += len(part) + 1
    return frozenset(found)


def _part(text: str, offset: int, field: _Field) -> set[int]:
    here = (offset, offset + max(1, len(text)))
    match = _PART.fullmatch(text)
    if match is None:
        raise CronError(f"'{text}' is no {field.words}", *here, "write *, 5, 1-5, */15 or a list such as 0,30")
    first, _, last = match[1].partition("-")
    step = int(match[2] or 1)
    if not step or (match[2] and not last and first != "*"):
        raise CronError(f"the step of '{text}' means nothing", *here, f"write */{step or 1} or a-b/{step or 1}")
    if first == "*":
        return set(range(field.least, field.most + 1, step))
    low = _value(first, here, field)
    high = _value(last, here, field) if last else low
    if high < low:
        raise CronError(f"'{text}' goes backwards", *here, f"write two: {first}-{field.most},{field.least}-{last}")
    return set(range(low, high + 1, step))


def _value(text: str, here: tuple[int, int], field: _Field) -> int:
    value = field.names.get(text.upper(), int(text) if text.isdigit() else -1)
    if not field.least <= value <= field.most:
        raise CronError(f"'{text}' is no {field.words}", *here, f"it goes from {field.least} to {field.most}")
    return value


def _check_days(text: str, fields: list[re.Match[str]], values: tuple[frozenset[int], ...]) -> None:
    days, months, weekdays = values[2:]
    if len(days) < 31 and len({day % 7 for day in weekdays}) < 7:
        hint = "cron programs differ in whether one or both must fit: restrict one of them"
        raise CronError("both days, of the month and of the week, are restricted", fields[2].start(), len(text), hint)
    if min(days) > max(_LENGTHS.get(month, 31) for month in months):
        raise CronError("there is no such day", fields[2].start(), fields[3].end())
