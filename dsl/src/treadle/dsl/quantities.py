"""Durations (`30s`, `1h30m`) and sizes (`64MiB`): written with a unit, kept as seconds and bytes.

A bare number is refused: `timeout: 30` has been read as seconds, milliseconds and minutes by different systems.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

_UNIT_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_UNIT_BYTES = {
    "B": 1,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
}
_DURATION = r"(?:\d+(?:\.\d+)?(?:ms|s|m|h|d))+"
_SIZE = r"\d+(?:\.\d+)?(?:B|KiB|MiB|GiB|TiB|KB|MB|GB)"


def parse_duration(text: Any) -> float:
    """Seconds of `1h30m`; raises ValueError for anything without units."""
    if not isinstance(text, str) or not re.fullmatch(_DURATION, text):
        raise ValueError(f"a duration needs a unit, such as 30s, 5m or 1h30m; got {text!r}")
    pairs = re.findall(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)", text)
    return sum(float(number) * _UNIT_SECONDS[unit] for number, unit in pairs)


def format_duration(seconds: float) -> str:
    """The shortest text that parses back to the same number of seconds."""
    for unit in ("d", "h", "m", "s"):
        if seconds >= _UNIT_SECONDS[unit] and seconds % _UNIT_SECONDS[unit] == 0:
            return f"{int(seconds // _UNIT_SECONDS[unit])}{unit}"
    millis = round(seconds * 1000, 6)
    return f"{int(millis) if millis == int(millis) else millis}ms"


def parse_size(text: Any) -> int:
    """Bytes of `64MiB`; raises ValueError for anything without a unit."""
    if not isinstance(text, str) or not re.fullmatch(_SIZE, text):
        raise ValueError(f"a size needs a unit, such as 64MiB or 1GB; got {text!r}")
    number, unit = re.fullmatch(r"([\d.]+)([A-Za-z]+)", text).groups()  # type: ignore[union-attr]
    return int(float(number) * _UNIT_BYTES[unit])


def format_size(size: int) -> str:
    """The largest binary unit that divides `size`."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if size and size % _UNIT_BYTES[unit] == 0:
            return f"{size // _UNIT_BYTES[unit]}{unit}"
    return f"{size}B"


class Seconds(float):
    """A duration already parsed."""


class Bytes(int):
    """A size already parsed."""


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
