"""Syntax errors of YAML in plain words."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import yaml

from ..diagnostics.diagnostics import Path, Span

_TOP = Span(1, 1, 1, 2)
MAX_DEPTH = 64
"""Levels of nesting in a document."""


@dataclass(frozen=True, slots=True)
class SyntaxProblem:
    """A finding before the document's name is known."""

    code: str
    message: str
    hint: str = ""
    span: Span = _TOP
    path: Path = ()


class YamlProblem(Exception):
    """Ends loading: nothing after this place can be trusted."""

    def __init__(self, problem: SyntaxProblem) -> None:
        super().__init__(problem.message)
        self.problem = problem


def explain(error: yaml.YAMLError | UnicodeEncodeError, text: str) -> SyntaxProblem:
    """Translate the parser's message for the author, at the place where the parser stopped."""
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return _unreadable(error, text)
    mark = error.problem_mark
    if text[max(mark.index - 1, 0) : mark.index + 2] == "${{":
        return _unquoted(mark, text)
    span = Span(mark.line + 1, mark.column + 1, mark.line + 1, mark.column + 2)
    words = f"{error.context or ''} {error.problem or ''}"
    if "nesting depth" in words:  # PyYAML 6.0.4 has a limit of its own, far above this one
        return SyntaxProblem("T004", f"more than {MAX_DEPTH} levels of nesting", "", span)
    message, hint = _words(words, text[mark.index : mark.index + 1])
    opening = error.context_mark
    if opening is not None and re.search(r"flow|quoted scalar.*end of stream|a tag", words):
        if opening.index < mark.index < len(text.rstrip()) and "flow" in words:
            message += f"; it is opened at line {opening.line + 1}, column {opening.column + 1}"
        else:
            span = Span(opening.line + 1, opening.column + 1, opening.line + 1, opening.column + 2)
    return SyntaxProblem("T007" if "a tag" in words else "T001", message, hint, span)


def _unquoted(mark: Any, text: str) -> SyntaxProblem:
    line = text[mark.index - mark.column :].split("\n", 1)[0]
    start = max(line.rfind(mark_char, 0, mark.column - 1) for mark_char in ",[{:") + 1
    end = line.find("}}", mark.column)
    stop = end + 2 if end >= 0 else len(line)
    value = line[start:stop].strip()
    first = start + len(line[start:stop]) - len(line[start:stop].lstrip())
    span = Span(mark.line + 1, first + 1, mark.line + 1, stop + 1)
    message = "inside { } and [ ] an expression must be quoted, since YAML reads its braces as a mapping"
    return SyntaxProblem("T002", message, f'write "{value}"', span)


def _unreadable(error: Exception, text: str) -> SyntaxProblem:
    """Report a character that YAML does not allow; libyaml gives only its byte or character offset."""
    bad = re.search(r"[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", text)
    if bad is None:
        return SyntaxProblem("T001", f"the text is not YAML: {error}")
    line = text.count("\n", 0, bad.start()) + 1
    col = bad.start() - text.rfind("\n", 0, bad.start())
    message = f"the character U+{ord(bad.group()):04X} is not allowed in YAML"
    return SyntaxProblem(
        "T001", message, "remove it, or write it as an escape in double quotes", Span(line, col, line, col + 1)
    )


_TABLE: tuple[tuple[str, str, str], ...] = (
    (r"tab character", "a tab is used for indentation", "indent with spaces"),
    (
        r"mapping values are not allowed",
        "a second `key:` on one line, or a `:` inside an unquoted value",
        "quote the value, or put the key on its own line with the indentation of its neighbours",
    ),
    (r"sequence entries are not allowed", "a list begins on the line of its key", "put `- ` on the next line"),
    (
        r"flow mapping",
        "a `{` is not closed, or a `,` is missing between its entries",
        "add `}` or `,`",
    ),
    (
        r"flow sequence",
        "a `[` is not closed, or a `,` is missing between its entries",
        "add `]` or `,`",
    ),
    (r"quoted scalar.*unexpected end", "a quote is opened and never closed", "close the quote"),
    (
        r"document start",
        "the document has ended above this line",
        "indent what belongs to it, or keep it in a file of its own",
    ),
    (
        r"node content",
        "a value is missing here, or a `[` or `{` above is not closed",
        "write the value, or quote a bracket or comma that is text",
    ),
    (
        r"unknown escape",
        "a backslash in double quotes begins an escape that YAML does not have",
        "double it, or use single quotes",
    ),
    (
        r"(scanning an alias|scanning an anchor)",
        "a value that begins with * or & is an alias or an anchor",
        "quote the value if it is text",
    ),
    (r"could not find expected ':'", "a key without `:`", "write `key: value`"),
    (
        r"block (mapping|collection|sequence)",
        "this line does not belong to the lines above it",
        "give it the indentation of its neighbours; text after a closing quote must be inside the quotes",
    ),
    (r"tag", "a value that begins with ! is a YAML tag", "quote the value if it is text"),
)


def _words(problem: str, char: str) -> tuple[str, str]:
    if "cannot start any token" in problem:
        if char == "\t":
            return "a tab is used for indentation", "indent with spaces"
        return f"a value cannot begin with {char}", "quote the value"
    for pattern, message, hint in _TABLE:
        if re.search(pattern, problem):
            return message, hint
    return f"the text is not YAML: {problem.strip()}", ""
