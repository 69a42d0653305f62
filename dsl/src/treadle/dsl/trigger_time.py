"""`trigger.time` in expressions: the named parts of a point in time, and their types."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from .expressions import Type

MOMENT: Mapping[str, Type] = {
    "iso": Type.STRING,
    "date": Type.STRING,
    "year": Type.INT,
    "month": Type.INT,
    "day": Type.INT,
    "hour": Type.INT,
    "minute": Type.INT,
    "second": Type.INT,
    "weekday": Type.INT,
    "epoch": Type.INT,
}


def moment(when: datetime) -> dict[str, str | int]:
    """Return the parts of an aware `when`, in its own timezone; fractions of a second are cut off.

    `iso` is RFC 3339 with the offset, `date` its first ten characters; `weekday` counts from Monday = 1 (ISO 8601);
    `epoch` is in seconds.
    """
    return {
        "iso": when.isoformat(timespec="seconds"),
        "date": when.date().isoformat(),
        "year": when.year,
        "month": when.month,
        "day": when.day,
        "hour": when.hour,
        "minute": when.minute,
        "second": when.second,
        "weekday": when.isoweekday(),
        "epoch": int(when.replace(microsecond=0).timestamp()),
    }
