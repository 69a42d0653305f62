"""The core schema of YAML 1.2 (section 10.3.2): the value of a plain scalar."""

from __future__ import annotations

import json
import math
import re

from treadle.primitives.result import is_storable

_INT = re.compile(r"[-+]?[0-9]+")
_OCTAL = re.compile(r"0o[0-7]+")
_HEX = re.compile(r"0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_MAX_DIGITS = 1000
Scalar = bool | int | float | str | None


class UnsupportedTag(Exception):
    """The scalar has a tag outside the core schema."""

    def __init__(self, tag: str, text: str) -> None:
        shown = json.dumps(f"{tag} {text}".rstrip(), ensure_ascii=False)
        super().__init__(f"'{tag}' is a YAML tag without a meaning here")
        self.hint = f"a value that begins with ! must be quoted: {shown}" if tag[:1] == "!" else "remove the tag"


def is_text(text: str) -> bool:
    """Return whether the text is a string even without quotes, and not a number, a boolean or null."""
    try:
        return isinstance(_plain(text), str)
    except ValueError:
        return False


def resolve(text: str, tag: str | None, plain: bool) -> Scalar:
    """Return the value of a scalar. Raises UnsupportedTag, and ValueError for numbers that JSON cannot hold."""
    if tag in (None, ""):
        return _plain(text) if plain else text
    if tag in ("!", "tag:yaml.org,2002:str"):
        return text
    value = _plain(text)
    if tag == "tag:yaml.org,2002:float" and type(value) is int:
        return float(value)  # at most 64 bits
    if tag == f"tag:yaml.org,2002:{_TAGS.get(type(value))}":
        return value
    raise UnsupportedTag(tag or "", text)


_TAGS = {bool: "bool", int: "int", float: "float", type(None): "null"}


def _plain(text: str) -> Scalar:
    if text in _WORDS:
        return _WORDS[text]
    if len(text) > _MAX_DIGITS:
        return text  # int() refuses very long numbers, and is slow for long ones
    if _INT.fullmatch(text):
        return _storable(int(text), text)
    if _OCTAL.fullmatch(text):
        return _storable(int(text[2:], 8), text)
    if _HEX.fullmatch(text):
        return _storable(int(text, 16), text)
    return _float(text)


def _storable(value: int, text: str) -> int:
    if not is_storable(value):
        raise ValueError(f"{_shown(text)} has more than 64 bits")
    return value


def _float(text: str) -> float | str:
    if _NOT_FINITE.fullmatch(text):
        raise ValueError(f"{text} has no JSON form, so it cannot be stored with a run")
    if not _FLOAT.fullmatch(text):
        return text
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{_shown(text)} is larger than any 64-bit float")
    return value


def _shown(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:37]}..."
