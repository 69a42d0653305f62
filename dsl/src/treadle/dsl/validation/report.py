"""Collects the findings of the checks."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from ..diagnostics.diagnostics import CODES, MOST_LISTED, Diagnostic, Hint, Path, Severity, Span, listed
from ..document.document import Document
from ..expressions import ExpressionError


@dataclass
class Report:
    """Findings about one document, positioned when they are added. Findings beyond the limit are only counted."""

    document: Document
    found: list[Diagnostic] = field(default_factory=list)
    _counts: Counter[Severity] = field(default_factory=Counter)
    _more: int = 0

    def add(self, code: str, path: Path, message: str, hint: Hint = "", *, key: bool = False) -> None:
        """Add a finding about the value at `path`, or about its key."""
        if self._has_room(code):
            self._put(code, message, hint, self.document.span(path, key=key), path)

    def inside(self, code: str, path: Path, text: str, at: tuple[int, int], message: str, hint: Hint = "") -> None:
        """Add a finding about the characters `at` of the string at `path`."""
        if self._has_room(code):
            self._put(code, message, hint, self.document.within(path, text, *at), path)

    def expression(self, code: str, path: Path, text: str, error: ExpressionError) -> None:
        end = error.offset
        while end < len(text) and (text[end].isalnum() or text[end] in "_."):
            end += 1
        self.inside(code, path, text, (error.offset, end), error.message, error.hint)

    def listed(self) -> list[Diagnostic]:
        """Return the findings in the order of the text."""
        return listed(self.found, self._more)

    def _has_room(self, code: str) -> bool:
        severity = CODES[code][0]
        self._counts[severity] += 1
        if self._counts[severity] <= MOST_LISTED:
            return True
        self._more += 1
        return False

    def _put(self, code: str, message: str, hint: Hint, span: Span, path: Path) -> None:
        shown = hint if isinstance(hint, str) else hint()
        self.found.append(Diagnostic(code, message, shown, self.document.file, span, path))
