"""Output formats of diagnostics: text (in the manner of rustc and Ruff), JSON, SARIF 2.1.0, GitHub annotations."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from .diagnostics import CODES, Diagnostic

DiagnosticFormat = Literal["text", "json", "sarif", "github"]
_WINDOW = 120
"""Limit of characters of a source line shown around an error."""


def render(diagnostics: Sequence[Diagnostic], source: str | Mapping[str, str] = "") -> str:
    """Return each finding with its source line and carets; empty for none. `source`: the text of all files or of each
    file.
    """
    files = {one.file for one in diagnostics}
    sources = dict.fromkeys(files, source) if isinstance(source, str) else source
    breaks = r"\r\n|[\r\n\x85\u2028\u2029]"  # the line breaks of the YAML parser
    lines = {file: re.split(breaks, sources.get(file, "")) for file in files}
    return "\n".join(_render_one(diagnostic, lines[diagnostic.file]) for diagnostic in diagnostics)


def _render_one(diagnostic: Diagnostic, lines: Sequence[str]) -> str:
    head = f"{diagnostic.severity}[{diagnostic.code}] {visible(diagnostic.message)}"
    hint = f"  = {visible(diagnostic.hint)}\n" if diagnostic.hint else ""
    if not diagnostic.line:
        where = f" (at {diagnostic.where})" if diagnostic.path else ""
        return f"{diagnostic.file}: {head}{where}\n{hint}"
    place = f"{diagnostic.file}:{diagnostic.line}:{diagnostic.col}: "
    return f"{place}{head}\n{_excerpt(diagnostic, lines)}{hint}"


def _excerpt(diagnostic: Diagnostic, lines: Sequence[str]) -> str:
    if diagnostic.line > len(lines):
        return ""
    line = lines[diagnostic.line - 1].replace("\t", " ")
    start = diagnostic.col - 1
    end_line, end_col = diagnostic.end
    stop = end_col - 1 if end_line == diagnostic.line else len(line.rstrip())
    clip = max(0, start - _WINDOW // 2) if len(line) > _WINDOW else 0
    shown = visible(line[clip : clip + _WINDOW])  # the line may be the whole document
    carets = "^" * max(1, _width(shown[start - clip : max(0, stop - clip)]))
    number = str(diagnostic.line)
    gutter = " " * len(number)
    return f"  {number} | {shown.rstrip()}\n  {gutter} | {' ' * _width(shown[: start - clip])}{carets}\n"


def visible(text: str) -> str:
    """Replace control characters, since a document must not control the reader's terminal."""
    return "".join("\ufffd" if unicodedata.category(char) in ("Cc", "Cf") else char for char in text)


def _width(text: str) -> int:
    """Return the number of terminal columns: East Asian wide characters take two, combining marks none."""
    wide = sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)
    return wide - sum(1 for char in text if unicodedata.combining(char))


def as_dict(diagnostic: Diagnostic) -> dict[str, Any]:
    end_line, end_col = diagnostic.end
    return {
        "code": diagnostic.code,
        "severity": diagnostic.severity,
        "message": diagnostic.message,
        "hint": diagnostic.hint,
        "file": diagnostic.file,
        "line": diagnostic.line,
        "col": diagnostic.col,
        "endLine": end_line,
        "endCol": end_col,
        "path": list(diagnostic.path),
    }


def _json(diagnostics: Sequence[Diagnostic]) -> str:
    return json.dumps([as_dict(diagnostic) for diagnostic in diagnostics], indent=2, ensure_ascii=False) + "\n"


def _sarif_result(diagnostic: Diagnostic) -> dict[str, Any]:
    end_line, end_col = diagnostic.end
    region = {"startLine": diagnostic.line, "startColumn": diagnostic.col, "endLine": end_line, "endColumn": end_col}
    place: dict[str, Any] = {"artifactLocation": {"uri": diagnostic.file}}
    if diagnostic.line:
        place["region"] = region
    text = f"{diagnostic.message}. {diagnostic.hint}" if diagnostic.hint else diagnostic.message
    return {
        "ruleId": diagnostic.code,
        "level": diagnostic.severity,
        "message": {"text": text},
        "locations": [{"physicalLocation": place, "logicalLocations": [{"fullyQualifiedName": diagnostic.where}]}],
    }


def _sarif(diagnostics: Sequence[Diagnostic]) -> str:
    used = sorted({diagnostic.code for diagnostic in diagnostics})
    rules = [{"id": code, "shortDescription": {"text": CODES[code][1]}} for code in used]
    log = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": {"name": "treadle", "rules": rules}},
                "columnKind": "unicodeCodePoints",
                "results": [_sarif_result(diagnostic) for diagnostic in diagnostics],
            }
        ],
    }
    return json.dumps(log, indent=2, ensure_ascii=False) + "\n"


def _github(diagnostics: Sequence[Diagnostic]) -> str:
    return "".join(_github_line(diagnostic) for diagnostic in diagnostics)


def _github_line(diagnostic: Diagnostic) -> str:
    end_line, end_col = diagnostic.end
    fields = {"file": diagnostic.file, "line": diagnostic.line, "col": diagnostic.col, "endLine": end_line}
    if end_line == diagnostic.line:
        fields["endColumn"] = end_col
    fields["title"] = diagnostic.code
    properties = ",".join(f"{name}={_escape(str(value), property=True)}" for name, value in fields.items() if value)
    text = f"{diagnostic.message}\n{diagnostic.hint}" if diagnostic.hint else diagnostic.message
    return f"::{diagnostic.severity} {properties}::{_escape(text)}\n"


def _escape(text: str, *, property: bool = False) -> str:
    """Apply the escapes of GitHub's workflow commands."""
    text = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return text.replace(":", "%3A").replace(",", "%2C") if property else text


def format_diagnostics(
    diagnostics: Sequence[Diagnostic], form: DiagnosticFormat, source: str | Mapping[str, str] = ""
) -> str:
    """Return all findings in one format; `source` is the document's text (or that of each file), which
    `text` quotes.
    """
    forms: dict[str, Callable[[Sequence[Diagnostic]], str]] = {
        "text": lambda found: render(found, source),
        "json": _json,
        "sarif": _sarif,
        "github": _github,
    }
    return forms[form](diagnostics)
