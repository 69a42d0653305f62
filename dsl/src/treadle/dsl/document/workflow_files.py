"""Loads a workflow document together with its sub-workflows (`type: workflow`).

A project is the folder of the started document, with all below it; no other file is read. Workflows that run each other
in a cycle are refused, and the error shows the files of the cycle.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path as FilePath

from ..diagnostics.diagnostics import Path, path_text
from ..model import Spec, WorkflowStage
from ..normalise import as_written
from .document import Document, at_path, load_file, load_text
from .syntax import SyntaxProblem

MAX_DEPTH = 8
"""Limit of nested workflows, the outermost included."""
MAX_DOCUMENTS = 100
"""Limit of workflows below one document. Each use counts, since a run stores a copy for each."""


def load(source: FilePath | str, file: str = "") -> Document:
    """Read a file (a Path) or a text (a str, named `file`): YAML 1.2 or JSON. Never raises for its contents.

    Files of its sub-workflows are read too; the project is the file's folder.
    """
    if isinstance(source, FilePath):
        return _with_children(load_file(source, file or str(source)), source)
    return _with_children(load_text(source, file or "<document>"))


def from_spec(spec: Spec, file: str = "<workflow>", path: FilePath | None = None) -> Document:
    """Return a document without text, for a spec of the builder (in the file at `path`) or of a run."""
    return _with_children(Document(file, data=as_written(spec), spec=spec), path)


def _with_children(document: Document, path: FilePath | None = None) -> Document:
    """Return the document with its sub-workflows, at all depths; errors are added to its problems.

    `path`: the document's file. Without it, sub-workflows must be in the document, not in files.
    """
    if document.spec is None or not any(_uses(document.spec)):
        return document
    trail = (path.absolute().parent.resolve() / path.name,) if path else ()
    return _Reader(trail[0].parent if trail else None).attach(document, trail, 1)


def linked(document: Document) -> Spec:
    """Return the spec with its sub-workflows in place of their files, the form that a run stores. Raises
    InvalidDocument.

    Triggers of sub-workflows are left out: only the deployed workflow's own triggers count.
    """
    spec = document.require()
    found = {
        name: stage.model_copy(update={"uses": linked(document.children[name]).model_copy(update={"triggers": {}})})
        for name, stage in _uses(spec)
    }
    return spec.model_copy(update={"stages": {**spec.stages, **found}}) if found else spec


def _uses(spec: Spec) -> Iterator[tuple[str, WorkflowStage]]:
    """Yield sub-workflow stages; loops have none, because `validate` refuses them."""
    yield from ((name, stage) for name, stage in spec.stages.items() if isinstance(stage, WorkflowStage))


class _Wrong(Exception):
    """A sub-workflow cannot be read; `hint` is the remedy."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class _Reader:
    """Reads the files of one project."""

    def __init__(self, root: FilePath | None) -> None:
        self._root = root
        self._count = 0

    def attach(self, document: Document, trail: tuple[FilePath, ...], depth: int) -> Document:
        """`trail`: the files from the outermost document to this one."""
        if document.spec is None:
            return document
        children: dict[str, Document] = {}
        problems = list(document.problems)
        for name, stage in _uses(document.spec):
            path: Path = ("stages", name, "uses")
            try:
                children[name] = self._child(document, path, stage, trail, depth)
            except _Wrong as wrong:
                problem = SyntaxProblem("T110", str(wrong), wrong.hint, path=path)
                problems.append(at_path(document, problem, on_key=False))
        return replace(document, children=children, problems=tuple(problems))

    def _child(
        self, document: Document, path: Path, stage: WorkflowStage, trail: tuple[FilePath, ...], depth: int
    ) -> Document:
        self._count += 1
        if depth >= MAX_DEPTH:
            raise _Wrong(f"more than {MAX_DEPTH} workflows are inside each other", "let one do what two of them do")
        if self._count > MAX_DOCUMENTS:
            raise _Wrong(f"there are more than {MAX_DOCUMENTS} sub-workflows below this document")
        if isinstance(stage.uses, Spec):
            return self.attach(_part(document, path, stage.uses), trail, depth + 1)
        file = self._found(stage.uses, trail)
        name = os.path.normpath(FilePath(document.file).parent / stage.uses)
        return self.attach(load_file(file, name), (*trail, file), depth + 1)

    def _found(self, uses: str, trail: tuple[FilePath, ...]) -> FilePath:
        if self._root is None:
            hint = "save it as a file, or put the other workflow in its place"
            raise _Wrong(f"this document has no place that '{uses}' could be seen from", hint)
        try:
            file = (trail[-1].parent / uses).resolve()
            exists = stat.S_ISREG(file.stat().st_mode)
        except (FileNotFoundError, NotADirectoryError):
            exists = False
        except (OSError, ValueError, RuntimeError) as error:  # RuntimeError: a cycle of links, before Python 3.13
            raise _Wrong(f"'{uses}' cannot be looked for: {error}") from error
        if not file.is_relative_to(self._root):
            hint = f"keep it in {self._root} or below"
            raise _Wrong(f"'{uses}' is outside of the project", hint)
        if file in trail:
            shown = " → ".join(str(each.relative_to(self._root)) for each in (*trail[trail.index(file) :], file))
            raise _Wrong(f"workflows run each other: {shown}", "to repeat stages, use a loop")
        if not exists:
            raise _Wrong(f"there is no file '{uses}'", f"it is looked for at {file}")
        return file


def _part(document: Document, path: Path, spec: Spec) -> Document:
    """Return the workflow inside the document at `path`, as a document of its own."""
    data = document.data
    for part in path:
        data = data[part]
    places = document.places.below(path)
    file = document.file if places else f"{document.file}: {path_text(path)}"
    return Document(file, document.source, data, places, (), spec)
