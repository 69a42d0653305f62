"""Durations (`30s`, `1h30m`) and sizes (`64MiB`): written with a unit, stored as seconds and bytes.

A bare number is refused: different systems have read `timeout: 30` as seconds, milliseconds and minutes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from decimal import Decimal, Overflow
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

_UNIT_MILLISECONDS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
SIZE_UNITS = {
    "B": 1,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
}
_DURATION = r"(?:[0-9]+(?:\.[0-9]+)?(?:ms|s|m|h|d))+"
_SIZE = r"([0-9]+(?:\.[0-9]+)?)(B|KiB|MiB|GiB|TiB|KB|MB|GB)"
_LARGEST = 2**63 - 1
TOO_MUCH = "it may be at most"
"""Prefix of the error for a quantity that is too large."""


def parse_duration(text: Any) -> float:
    """Return the seconds of `1h30m`. Raises ValueError for text without units, and for more than a century."""
    if not isinstance(text, str) or not re.fullmatch(_DURATION, text):
        raise ValueError(f"a duration needs a unit, such as 30s, 5m or 1h30m; got {text!r}")
    pairs = re.findall(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)", text)
    return float(_total(pairs, _UNIT_MILLISECONDS, 36_500 * _UNIT_MILLISECONDS["d"], "36500d") / 1000)


def format_duration(seconds: float) -> str:
    """Return text in the largest unit that divides `seconds`; it parses back to the same number."""
    milliseconds = Decimal(repr(float(seconds))) * 1000
    for unit in ("d", "h", "m", "s"):
        count, rest = divmod(milliseconds, _UNIT_MILLISECONDS[unit])
        if count and not rest:
            return f"{count:f}{unit}"
    return f"{milliseconds.normalize():f}ms"


def parse_size(text: Any) -> int:
    """Return the bytes of `64MiB`, rounded down. Raises ValueError for text without a unit, and for 2**63 or more."""
    match = re.fullmatch(_SIZE, text) if isinstance(text, str) else None
    if match is None:
        raise ValueError(f"a size needs a unit, such as 64MiB or 1GB; got {text!r}")
    return int(_total([(match[1], match[2])], SIZE_UNITS, _LARGEST, f"{_LARGEST}B"))


def _total(parts: Iterable[tuple[str, str]], units: Mapping[str, int], most: int, words: str) -> Decimal:
    """Return the sum of numbers with their units. Raises ValueError for more than `most`."""
    try:
        total = sum((Decimal(number) * units[unit] for number, unit in parts), Decimal())
    except Overflow:  # a number with a million digits
        total = Decimal("Infinity")
    if total > most:
        raise ValueError(f"{TOO_MUCH} {words}")
    return total


def parse_percentage(text: str) -> float:
    """Return 95 for `95%`, whose form the model has checked."""
    return float(text.removesuffix("%"))


def format_size(size: int) -> str:
    """Return text in the largest binary unit that divides `size`."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if size and size % SIZE_UNITS[unit] == 0:
            return f"{size // SIZE_UNITS[unit]}{unit}"
    return f"{size}B"


class Seconds(float):
    """A parsed duration."""


class Bytes(int):
    """A parsed size."""


Duration = Annotated[
    float,
    BeforeValidator(lambda value: value if isinstance(value, Seconds) else Seconds(parse_duration(value))),
    PlainSerializer(format_duration, return_type=str),
    WithJsonSchema({"type": "string", "pattern": f"^{_DURATION}$", "examples": ["30s", "1h30m"]}),
]
Size = Annotated[
    int,
    BeforeValidator(lambda value: value if isinstance(value, Bytes) else Bytes(parse_size(value))),
    PlainSerializer(format_size, return_type=str),
    WithJsonSchema({"type": "string", "pattern": f"^{_SIZE}$", "examples": ["64MiB", "1GB"]}),
]
