"""Findings about a document: the error, its position, and the remedy.

A code never changes its meaning; docs/diagnostics.md is printed from `CODES` and a test compares the two.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Literal, NamedTuple

Path = tuple[str | int, ...]
"""Keys and list positions from the top of the document to a value."""
Severity = Literal["error", "warning"]
Hint = str | Callable[[], str]
"""The remedy; a function when it needs a search, which then runs only for listed findings."""
MOST_LISTED = 100
"""Limit of listed errors, and of listed warnings, of one document; the rest is counted."""
MOST_NAMED = 20
"""Limit of names in one message."""
MOST_TEXT = 1000
"""Limit of characters of one message, and of one hint."""
MOST_LETTERS = 100
"""Longest name for which similar names are searched: the time grows with the square of its length."""
MOST_COMPARED = 200
"""Limit of names that are compared with a misspelt name."""

CODES: Mapping[str, tuple[Severity, str]] = {
    "T001": ("error", "The text is not YAML."),
    "T002": ("error", "`${{ }}` is not quoted inside `{ }` or `[ ]`."),
    "T003": ("error", "A key is given twice."),
    "T004": ("error", "The document is too large, too deep, expands aliases too often, or has too many expressions."),
    "T005": ("error", "There is no document, or more than one."),
    "T006": ("error", "A key is not text."),
    "T007": ("error", "A YAML tag that is not in the core schema."),
    "T008": ("error", "An alias or merge key that leads nowhere."),
    "T009": ("error", "The file cannot be read as UTF-8 text."),
    "T010": ("error", "A number without a JSON form."),
    "T011": ("error", "A required key is missing."),
    "T012": ("error", "A key that does not exist here."),
    "T013": ("error", "A value of the wrong type."),
    "T014": ("error", "A value that is not among the allowed ones."),
    "T015": ("error", "A value that is too small, too large, too short or too long."),
    "T016": ("error", "A text whose form does not match this key."),
    "T017": ("error", "A duration or size without its unit."),
    "T018": ("error", "A keyword that this version does not support."),
    "T019": ("error", "A Python file that fails, or does not define one workflow."),
    "T101": ("error", "A reference to something that does not exist."),
    "T102": ("error", "A reference to something that exists but is not visible from here."),
    "T103": ("error", "Stages wait for each other in a circle."),
    "T104": ("error", "Two stages have one id."),
    "T105": ("error", "A name that already means something in references."),
    "T106": ("error", "A reference to something that cannot be used in this place."),
    "T107": ("error", "`next` sets a state that the loop does not have, or a value of the wrong type."),
    "T108": ("error", "A metric that the stage does not declare."),
    "T109": ("error", "A secret used other than as a whole `with` value, or not declared."),
    "T110": ("error", "A sub-workflow that cannot be found, is outside of the project, or runs itself."),
    "T201": ("error", "A reduce with both `uses` and `combine`, or neither."),
    "T202": ("error", "`fanIn` without a reduce tree."),
    "T203": ("error", "`initial` or `finish` without `combine`."),
    "T204": ("error", "`per: key` over an input that no shuffle has grouped."),
    "T205": ("error", "`whole` on an input that has no text partition."),
    "T206": ("error", "A `batch` without a limit."),
    "T207": ("error", "Range boundaries that do not match the shuffle."),
    "T208": ("error", "`by` or `combine` of a shuffle that do not fit its records."),
    "T209": ("error", "`idempotent: false` on a stage that may run again."),
    "T210": ("error", "`failedItems` or `toleratedFailures` that can have no effect."),
    "T211": ("error", "An option of another file format, or a required one missing."),
    "T212": ("error", "A file format that cannot hold these records."),
    "T213": ("error", "Parquet from Python objects without `columns`."),
    "T214": ("error", "A metric declared in a way this stage does not aggregate."),
    "T215": ("error", "A `quorum` that cannot be guaranteed."),
    "T216": ("error", "Files written by a stage that runs in every iteration of a loop."),
    "T217": ("error", "A setting that would have no effect."),
    "T218": ("error", "An input whose declaration contradicts itself."),
    "T219": ("error", "Two stages write to the same place."),
    "T220": ("error", "A `gang` whose size differs from the number of partitions."),
    "T221": ("error", "A setting that does not apply to a gang: its partitions run, succeed and fail together."),
    "T222": ("error", "A sub-workflow inside a loop."),
    "T223": ("error", "A `cache` on a stage whose result may differ in another run."),
    "T224": ("error", "An object with both `type` and `uses`, or neither."),
    "T225": ("error", "Two stages use an object, one of them changes it, and no order between them is given."),
    "T226": ("error", "A loop that may be skipped, with stages that change an object."),
    "T301": ("error", "An expression that cannot be parsed."),
    "T302": ("error", "An expression uses a name that has no value at this place."),
    "T303": ("error", "`${{ }}` in a place without expressions, or around a value that is an expression already."),
    "T304": ("error", "An expression of the wrong type."),
    "T401": ("error", "A function's module does not exist."),
    "T402": ("error", "A function's module fails when it is imported."),
    "T403": ("error", "A module does not have the function."),
    "T404": ("error", "The name is not a function."),
    "T405": ("error", "The function does not take the arguments the stage gives it."),
    "T406": ("error", "`flat` contradicts the function's annotation."),
    "T407": (
        "error",
        "A module of the project has the name of one of Python, or of a library that treadle uses.",
    ),
    "T408": ("error", "The class is not one of shared objects, or it has no value for `outputs`."),
    "T501": ("error", "A value given for an input that is not declared."),
    "T502": ("error", "A required input without a value."),
    "T503": ("error", "A value that its input does not accept."),
    "T601": ("warning", "An input that nothing uses."),
    "T602": ("warning", "A stage whose result nothing uses."),
    "T603": ("warning", "A secret that nothing uses."),
    "T604": ("warning", "A webhook without a secret: every client may call it."),
    "T605": ("warning", "Braces that look like an expression, and are not."),
    "T606": ("warning", "More findings than are listed."),
    "T607": ("warning", "No stage uses an object."),
    "T701": ("error", "Settings of a trigger that contradict each other, or that its source does not support."),
    "T702": ("error", "A cron expression that cannot be parsed, or never matches."),
    "T703": ("error", "A timezone that does not exist."),
    "T704": ("error", "A topic with an invalid name, a repeated topic, or a topic that would feed itself."),
    "T705": ("error", "An object location that cannot be listed."),
    "T706": ("error", "A `schema` that is not a JSON Schema, or refers to other documents."),
}


class Span(NamedTuple):
    """The position of a key or value: lines and columns count from 1, the end is exclusive; line 0 is unknown."""

    line: int = 0
    col: int = 0
    end_line: int = 0
    end_col: int = 0


NOWHERE = Span()


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One finding: the error (`message`), the remedy (`hint`), and the position."""

    code: str
    message: str
    hint: str = ""
    file: str = ""
    span: Span = NOWHERE
    path: Path = ()

    @property
    def severity(self) -> Severity:
        return CODES[self.code][0]

    @property
    def line(self) -> int:
        return self.span.line

    @property
    def col(self) -> int:
        return self.span.col

    @property
    def end(self) -> tuple[int, int]:
        return self.span.end_line, self.span.end_col

    @property
    def where(self) -> str:
        """The path as written in the language, such as `stages.count.with.k[0]`."""
        return path_text(self.path)


def path_text(path: Path) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).lstrip(".")


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """Return `did you mean 'retry'?`, or "" when no choice is similar."""
    found = nearest(word, choices)
    return "" if found is None else f"did you mean '{found}'?"


def nearest(word: str, choices: Iterable[str]) -> str | None:
    """Return the choice with the most similar spelling; None when no choice is similar."""
    if len(word) > MOST_LETTERS:
        return None
    lowered = {choice.lower(): choice for choice in choices if len(choice) <= 2 * MOST_LETTERS}
    found = get_close_matches(word.lower(), _neighbours(word.lower(), lowered), n=1, cutoff=0.6)
    return lowered[found[0]] if found else None


def _neighbours(word: str, choices: Iterable[str]) -> list[str]:
    """Return the choices; when there are too many, their neighbours in order, since each comparison takes
    microseconds.
    """
    words = list(choices)
    if len(words) <= MOST_COMPARED:
        return words
    words.sort()
    first = max(0, bisect_left(words, word) - MOST_COMPARED // 2)
    return words[first : first + MOST_COMPARED]


def one_of(words: Iterable[str]) -> str:
    """Return `a, b or c`, for messages; of a long list the first names and the number of the others."""
    shown = [f"'{word}'" for word in words] or ["nothing"]
    if len(shown) > MOST_NAMED:
        shown[MOST_NAMED:] = [f"one of {len(shown) - MOST_NAMED:,} others"]
    *most, last = shown
    return f"{', '.join(most)} or {last}" if most else last


def for_files(text: str) -> str:
    """Return how to write the bare name of files; empty for other text."""
    named = re.search(r"[/*]|\.(txt|csv|jsonl|parquet|npy|gz)$", text) and "${{" not in text
    return f'for files write `{{uri: "{text}", format: ...}}`' if named else ""


def for_list(text: str) -> str:
    """Return how to read an input, in place of an expression that names it; empty for other text."""
    named = re.fullmatch(r"\s*\$\{\{\s*(inputs\.[A-Za-z]\w*)\s*\}\}\s*", text)
    return f"to read a list or dataset write `input: {named[1]}`" if named else ""


def a(noun: str) -> str:
    """`a map`, `an integer`, `a uri`."""
    return f"{'an' if noun[0].lower() in 'aeio' else 'a'} {noun}"


def has_errors(diagnostics: Iterable[Diagnostic]) -> bool:
    return any(diagnostic.severity == "error" for diagnostic in diagnostics)


def in_order(diagnostics: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Sort by position and remove duplicates (an anchored mapping is checked at each use)."""
    unique = {(d.code, d.span, d.message) if d.line else (d.code, d.path, d.message): d for d in diagnostics}
    return sorted(unique.values(), key=lambda d: (d.code == "T606", d.line, d.col, d.code, d.where))


def listed(diagnostics: Sequence[Diagnostic], more: int = 0) -> list[Diagnostic]:
    """Return the findings of one document, in order and up to the limit of each severity; a last one counts the others.

    `more`: the number of findings that were only counted.
    """
    found = in_order(diagnostics)
    found = [replace(one, message=_cut(one.message), hint=_cut(one.hint)) for one in found]
    errors = [one for one in found if one.severity == "error"][:MOST_LISTED]
    warnings = [one for one in found if one.severity == "warning"][:MOST_LISTED]
    more += len(found) - len(errors) - len(warnings)
    return in_order([*errors, *warnings, *([_more(found[0].file, more)] if more else [])])


def _cut(text: str) -> str:
    return text if len(text) <= MOST_TEXT else f"{text[: MOST_TEXT - 3]}..."


def _more(file: str, count: int) -> Diagnostic:
    text = f"{count:,} more finding{' is' if count == 1 else 's are'} not listed"
    return Diagnostic("T606", text, "mend those that are listed, and validate again", file)


def codes_page() -> str:
    """Return the text of docs/diagnostics.md."""
    rows = [f"| {code} | {severity} | {meaning} |" for code, (severity, meaning) in CODES.items()]
    head = "# Diagnostics\n\nThe errors and warnings of `treadle validate`. A code never changes its meaning.\n"
    return "\n".join([head, "| code | severity | meaning |", "|---|---|---|", *rows, ""])
