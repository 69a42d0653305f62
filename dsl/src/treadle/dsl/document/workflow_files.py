"""Loads a workflow document together with its sub-workflows."""

from __future__ import annotations

from pathlib import Path

from ..model import Spec
from ..normalise import as_written
from .child_workflows import with_children
from .document import Document, load_file, load_text


def load(source: Path | str, file: str = "") -> Document:
    """Read a file (a Path) or a text (a str, named `file`): YAML 1.2 or JSON. Never raises for its contents.

    Files of its sub-workflows are read too; the project is the file's folder.
    """
    if isinstance(source, Path):
        return with_children(load_file(source, file or str(source)), source)
    return with_children(load_text(source, file or "<document>"))


def from_spec(spec: Spec, file: str = "<workflow>", path: Path | None = None) -> Document:
    """Return a document without text, for a spec of the builder (in the file at `path`) or of a run."""
    return with_children(Document(file, data=as_written(spec), spec=spec), path)
