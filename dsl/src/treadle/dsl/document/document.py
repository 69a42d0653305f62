"""A workflow document: its text, its positions, and its spec."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path as FilePath
from typing import Any

from pydantic import ValidationError

from treadle.primitives.errors import UsageError

from ..diagnostics.diagnostics import MOST_LISTED, NOWHERE, Diagnostic, Path, Span, has_errors, listed
from ..diagnostics.formats import render
from ..model import Spec
from ..templates import expression_size
from .loader import MAX_CHARACTERS, SourcePositions, load_yaml
from .model_errors import shape_problems
from .schema_lookup import empty_keys
from .syntax import SyntaxProblem

MAX_STAGES = 2000
"""Limit of stages in one document, at all depths: about as many as Temporal accepts at once."""
MAX_EXPRESSIONS = 250_000
"""Limit of characters of all expressions in one document (see `expression_size`)."""


class InvalidDocument(UsageError):
    """The document has errors; the author must change it. `diagnostics` has all findings, warnings included."""

    def __init__(self, diagnostics: Iterable[Diagnostic], sources: Mapping[str, str]) -> None:
        """`sources`: the text of each file with findings."""
        self.diagnostics = tuple(diagnostics)
        errors = [diagnostic for diagnostic in self.diagnostics if diagnostic.severity == "error"]
        super().__init__(render(errors, sources).rstrip("\n"))


@dataclass(frozen=True)
class Document:
    """The contents of a file or text. Without a `spec`, `problems` has at least one error."""

    file: str
    source: str = ""
    data: Any = None
    """The document as JSON, without its top-level `x-*` keys."""
    places: SourcePositions = field(default_factory=SourcePositions)
    problems: tuple[Diagnostic, ...] = ()
    spec: Spec | None = None
    children: Mapping[str, Document] = field(default_factory=dict)
    """Maps a stage to its sub-workflow, if the file was found."""

    @property
    def sources(self) -> dict[str, str]:
        """Maps file names to text, for this document and its sub-workflows."""
        found = {self.file: self.source}
        for child in self.children.values():
            found |= child.sources
        return found

    def span(self, path: Path, *, key: bool = False) -> Span:
        """Return the position of the value (or its key) at `path`; for a missing one that of the nearest enclosing
        value.
        """
        for length in range(len(path), -1, -1):
            place = self.places.get(path[:length])
            if place is not None:
                wants_key = key or length < len(path)
                return place.key if wants_key and place.key is not None else place.value
        return NOWHERE

    def within(self, path: Path, text: str, start: int, stop: int) -> Span:
        """Return the position of characters start..stop of the string at `path`."""
        place = self.places.get(path)
        return place.inside(text, start, stop) if place is not None else self.span(path)

    def require(self) -> Spec:
        """Return the spec. Raises InvalidDocument when there are errors. `validate` checks its meaning."""
        if self.spec is None or has_errors(self.problems):
            raise InvalidDocument(self.problems, self.sources)
        return self.spec


def load_file(path: FilePath, file: str) -> Document:
    """Read one file, without its sub-workflows. Never raises for its contents."""
    try:
        if path.stat().st_size > 4 * MAX_CHARACTERS:
            problem = Diagnostic("T004", f"the file is larger than {4 * MAX_CHARACTERS:,} bytes", "", file)
            return Document(file, problems=(problem,))
        return load_text(path.read_bytes().decode("utf-8"), file)
    except OSError as error:
        problem = unreadable(error, file)
    except UnicodeDecodeError as error:
        problem = Diagnostic("T009", f"byte {error.start} is not UTF-8", "save the file as UTF-8", file)
    return Document(file, problems=(problem,))


def unreadable(error: OSError, file: str) -> Diagnostic:
    hint = "check the name and its permissions"
    return Diagnostic("T009", f"cannot read the file: {error.strerror}", hint, file)


def load_text(text: str, file: str) -> Document:
    """Read one text: YAML 1.2 or JSON."""
    loaded = load_yaml(text)
    data = loaded.data
    if isinstance(data, dict):
        data = {key: value for key, value in data.items() if not key.startswith("x-")}
    document = Document(file, text.removeprefix("\ufeff"), data, loaded.places)
    if loaded.problems:
        return replace(document, problems=tuple(listed([_positioned(document, each) for each in loaded.problems])))
    return _shaped(document)


def _shaped(document: Document) -> Document:
    if not isinstance(document.data, dict):
        hint = "start with `apiVersion: treadle/v1`, `name:` and `stages:`"
        problem = SyntaxProblem("T013", "a workflow is a mapping of keys", hint, document.span(()))
        return replace(document, problems=(_positioned(document, problem),))
    if large := _too_large(document):
        return replace(document, problems=(_positioned(document, large),))
    try:
        spec = Spec.model_validate(document.data, by_alias=True, by_name=False)
        return replace(document, spec=spec, problems=tuple(_empty_keys(document)))
    except ValidationError as error:
        found = [at_path(document, *each) for each in islice(shape_problems(error, document.data), MOST_LISTED)]
        return replace(document, problems=tuple(listed(found, error.error_count() - len(found))))


def _too_large(document: Document) -> SyntaxProblem | None:
    if (count := _stages(document.data)) > MAX_STAGES:
        text = f"the document has {count:,} stages, and {MAX_STAGES:,} are allowed"
        hint = "put stages into workflows of their own (`type: workflow`)"
        return SyntaxProblem("T004", text, hint, document.span(("stages",), key=True), ("stages",))
    if (count := expression_size(document.data)) > MAX_EXPRESSIONS:
        text = f"the expressions of the document have {count:,} characters, and {MAX_EXPRESSIONS:,} are allowed"
        return SyntaxProblem("T004", text, "give data through inputs, or read it from a file")
    return None


def _stages(data: Any) -> int:
    """Return the number of stages at all depths."""
    stages = data.get("stages") if isinstance(data, dict) else None
    return len(stages) + sum(map(_stages, stages.values())) if isinstance(stages, dict) else 0


def _empty_keys(document: Document) -> Iterator[Diagnostic]:
    for path in empty_keys(document.data):
        problem = SyntaxProblem("T013", f"'{path[-1]}' has no value", "give it one, or remove the key", path=path)
        yield at_path(document, problem, on_key=True)


def at_path(document: Document, problem: SyntaxProblem, on_key: bool) -> Diagnostic:
    return _positioned(document, replace(problem, span=document.span(problem.path, key=on_key)))


def _positioned(document: Document, problem: SyntaxProblem) -> Diagnostic:
    return Diagnostic(problem.code, problem.message, problem.hint, document.file, problem.span, problem.path)
