"""Reading what a command is given: a YAML file, or a Python file or module with a Workflow in it."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from treadle.dsl.document import Document, InvalidDocument, from_spec, load
from treadle.dsl.model import Spec
from treadle.primitives.errors import UsageError


@dataclass(frozen=True)
class Loaded:
    """A document that may be started."""

    document: Document
    spec: Spec
    base: Path
    """Folder of the file: relative URIs and the project's modules start here."""
    captured: Mapping[str, bytes] = field(default_factory=dict)
    warnings: tuple[Any, ...] = ()


def read_document(path: Path) -> tuple[Document, Mapping[str, bytes]]:
    """The document of a file, and the functions captured with it. Raises UsageError for a Python file without one."""
    if path.suffix == ".py":
        return _from_python(path)
    return load(path), {}


def load_checked(path: Path) -> Loaded:
    """The document, valid, with importable functions. Raises InvalidDocument with every finding."""
    from treadle.dsl.diagnostics import has_errors
    from treadle.dsl.validate import validate
    from treadle.dsl.validate_functions import check_functions

    document, captured = read_document(path)
    base = path.absolute().parent
    found = validate(document)
    if not has_errors(found):
        found = [*found, *check_functions(document, [base])]
    if has_errors(found):
        raise InvalidDocument(found, document.source)
    if str(base) not in sys.path:
        sys.path.insert(0, str(base))
    return Loaded(document, document.require(), base, captured, tuple(found))


def _from_python(path: Path) -> tuple[Document, Mapping[str, bytes]]:
    from treadle.dsl import Workflow

    if not path.exists():
        raise UsageError(f"there is no file {path}", "Check the name.")
    sys.path.insert(0, str(path.absolute().parent))
    module = runpy.run_path(str(path), run_name=path.stem)
    found = {name: value for name, value in module.items() if isinstance(value, Workflow)}
    if len(found) != 1:
        names = f"several: {', '.join(found)}" if found else "none"
        raise UsageError(f"{path} must define exactly one Workflow, and has {names}", "Keep one at module level.")
    workflow = next(iter(found.values()))
    return from_spec(workflow.spec(), str(path)), workflow.captured
