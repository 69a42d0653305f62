"""Where the checks put what they find."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..diagnostics.diagnostics import Diagnostic, Path
from ..document.document import Document
from ..expressions import ExpressionError


@dataclass
class Report:
    """Findings about one document, positioned as they come."""

    document: Document
    found: list[Diagnostic] = field(default_factory=list)

    def add(self, code: str, path: Path, message: str, hint: str = "", *, key: bool = False) -> None:
        """A finding about the value at `path`, or about its key."""
        span = self.document.span(path, key=key)
        self.found.append(Diagnostic(code, message, hint, self.document.file, span, path))

    def inside(self, code: str, path: Path, text: str, at: tuple[int, int], message: str, hint: str = "") -> None:
        """A finding about the characters `at` of the string at `path`."""
        span = self.document.within(path, text, *at)
        self.found.append(Diagnostic(code, message, hint, self.document.file, span, path))

    def expression(self, code: str, path: Path, text: str, error: ExpressionError) -> None:
        end = error.offset
        while end < len(text) and (text[end].isalnum() or text[end] in "_."):
            end += 1
        self.inside(code, path, text, (error.offset, end), error.message, error.hint)
