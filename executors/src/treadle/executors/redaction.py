"""Removes secrets from all data that leaves a worker: messages, tracebacks, logs and failed records.

A secret is found in the forms that code produces without the intention to hide it: verbatim, quoted by `repr` or JSON,
percent-encoded, as hexadecimal digits and as base64, in upper and lower case, and line by line. Other encodings, such
as compressed or reversed text, are not found.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

_LINE = 8
"""Minimum number of characters for one line of a secret to count as a secret."""
_ENCODED = 4
"""Minimum number of bytes for a secret to be searched for in hexadecimal digits and base64."""


class Redactor:
    """Replaces the values of secrets by `***NAME***`."""

    def __init__(self, secrets: Mapping[str, str]) -> None:
        self._secrets = secrets

    @cached_property
    def _forms(self) -> list[tuple[str, str]]:
        """(form, replacement) pairs, the longest form first."""
        forms = {form: f"***{name}***" for name, value in self._secrets.items() for form in _forms(value)}
        return sorted(forms.items(), key=lambda item: -len(item[0]))

    def text(self, text: str) -> str:
        if not self._secrets:
            return text
        lower = text.lower()
        for form, name in self._forms:
            if form in text or form.lower() in lower:
                text = _replaced(text, form, name)
                lower = text.lower()
        return text

    def log(self, data: bytes) -> bytes:
        return self.text(data.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")

    def record(self, record: Any) -> Any:
        """A record with every str and bytes in its plain containers redacted."""
        return self._value(record) if self._secrets else record

    def _value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, bytes):
            return self.log(value)
        if type(value) is dict:
            return {self._value(key): self._value(item) for key, item in value.items()}
        if type(value) in (list, tuple, set, frozenset):
            return type(value)(map(self._value, value))
        return value


def _replaced(text: str, form: str, name: str) -> str:
    """Replace `form` in any case. A letter whose length depends on its case is found only in its original case."""
    return re.sub(re.escape(form), lambda _: name, text.replace(form, name), flags=re.IGNORECASE)


def _forms(value: str) -> set[str]:
    lines = [line.strip() for line in value.splitlines()]
    parts = {value, *(line for line in lines if len(line) >= _LINE)}
    return {form for part in parts for form in _forms_of(part)} - {""}


def _forms_of(part: str) -> Iterator[str]:
    import json
    from urllib.parse import quote, quote_plus

    data = part.encode("utf-8", "surrogatepass")
    yield from (part, part.upper(), repr(part)[1:-1], repr(data)[2:-1], json.dumps(part)[1:-1])
    yield from (json.dumps(part, ensure_ascii=False)[1:-1], quote(data), quote(data, safe=""), quote_plus(data))
    if len(data) >= _ENCODED:
        yield data.hex()
        yield from _base64(data)


def _base64(data: bytes) -> Iterator[str]:
    """The characters that every base64 text containing the data shares, for each position of the data modulo three."""
    from base64 import b64encode, urlsafe_b64encode

    for before in range(3):
        first, last = -(-before * 8 // 6), (before + len(data)) * 8 // 6
        for encode in (b64encode, urlsafe_b64encode):
            yield encode(bytes(before) + data).decode()[first:last]
