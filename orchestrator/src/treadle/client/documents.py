"""The document to run: from a YAML file, from a Python file that defines a Workflow, or from a Workflow."""

from __future__ import annotations

import runpy
import sys
import sysconfig
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from treadle.dsl.document.document import Document, InvalidDocument, unreadable
from treadle.dsl.document.workflow_files import from_spec, linked, load
from treadle.dsl.model import Spec

if TYPE_CHECKING:
    from treadle.dsl import Workflow
    from treadle.dsl.diagnostics.diagnostics import Diagnostic


@dataclass(frozen=True)
class StartableDocument:
    """A document that can be started."""

    document: Document
    spec: Spec
    base: Path
    """Folder of the file: relative URIs and imports of the project's modules start here."""
    captured: Mapping[str, bytes] = field(default_factory=dict)
    warnings: tuple[Any, ...] = ()
    began: int = 0
    """When it began to be read, in nanoseconds since the epoch."""


def read_document(path: Path) -> tuple[Document, Mapping[str, bytes]]:
    """The document of a file, and the functions captured with it. Invalid contents raise no error."""
    if path.suffix != ".py":
        return load(path), {}
    try:
        workflow = read_workflow(path)
    except InvalidDocument as error:
        return Document(str(path), _text(path), problems=error.diagnostics), {}
    return from_spec(workflow.spec(), str(path), path), workflow.captured


def findings(document: Document, base: Path, *, functions: bool = True) -> list[Diagnostic]:
    """All findings of a document. Its functions are imported only if the other checks find no errors."""
    from treadle.dsl.diagnostics.diagnostics import has_errors
    from treadle.dsl.validation.functions import check_functions
    from treadle.dsl.validation.validate import validate

    found = validate(document)
    if functions and not has_errors(found):
        found = [*found, *check_functions(document, [base])]
    return found


def load_checked(source: Path | Workflow) -> StartableDocument:
    """The valid document of a file or a Workflow. Raises InvalidDocument with every finding.

    The base of a Workflow is the folder of the running script. In a notebook, and in an installed program such as
    pytest, it is the current folder.
    """
    began = time.time_ns()
    if isinstance(source, Path):
        return _checked(*read_document(source), source.absolute().parent, began)
    return _checked(from_spec(source.spec(), path=_script()), source.captured, _script().parent, began)


def _script() -> Path:
    """The script that this process runs. In a notebook or an installed program: a file that is not there, in the
    current folder."""
    file = Path(getattr(sys.modules["__main__"], "__file__", None) or "notebook").absolute()
    paths = sysconfig.get_paths()
    installed = file.parent == Path(paths["scripts"]) or any(
        file.is_relative_to(paths[name]) for name in ("stdlib", "purelib", "platlib")
    )
    return Path("program").absolute() if installed else file


def _checked(document: Document, captured: Mapping[str, bytes], base: Path, began: int) -> StartableDocument:
    from treadle.dsl.diagnostics.diagnostics import has_errors

    found = findings(document, base)
    if has_errors(found):
        raise InvalidDocument(found, document.sources)
    if str(base) not in sys.path:
        sys.path.insert(0, str(base))
    return StartableDocument(document, linked(document), base, captured, tuple(found), began)


def read_workflow(path: Path) -> Workflow:
    """The single Workflow that a Python file defines. Raises InvalidDocument."""
    from treadle.dsl import Workflow

    sys.path.insert(0, str(path.absolute().parent))
    module = _run(path)
    found = {name: value for name, value in module.items() if isinstance(value, Workflow) and not value.is_inside}
    if len(found) > 1:
        raise _wrong(path, f"it defines several workflows: {', '.join(found)}", "keep one at module level")
    if not found:
        raise _wrong(path, "it defines no workflow", 'define one at module level: `wf = Workflow("name")`')
    return next(iter(found.values()))


def _run(path: Path) -> dict[str, Any]:
    from contextlib import redirect_stdout

    from treadle.primitives.errors import TreadleError

    try:
        path.open("rb").close()
    except OSError as error:
        raise InvalidDocument([unreadable(error, str(path))], {}) from error
    try:
        with redirect_stdout(sys.stderr):
            return runpy.run_path(str(path), run_name=path.stem)
    except TreadleError as error:
        raise _wrong(path, error.message, error.hint, _line(path, error)) from error
    except (Exception, SystemExit) as error:
        text = f"it fails when it is run: {type(error).__name__}: {error}"
        raise _wrong(path, text, f"`python {path}` shows the traceback", _line(path, error)) from error


def _line(path: Path, error: BaseException) -> int:
    """The line of the file in which the error occurred; 0: unknown."""
    from traceback import walk_tb

    if isinstance(error, SyntaxError) and error.filename == str(path):
        return error.lineno or 0
    lines = [line for frame, line in walk_tb(error.__traceback__) if frame.f_code.co_filename == str(path)]
    return lines[-1] if lines else 0


def _wrong(path: Path, message: str, hint: str, line: int = 0) -> InvalidDocument:
    """The InvalidDocument error for a Python file."""
    from treadle.dsl.diagnostics.diagnostics import NOWHERE, Diagnostic, Span

    source = _text(path)
    text = source.splitlines()[line - 1].rstrip() if line else ""
    span = Span(line, len(text) - len(text.lstrip()) + 1, line, len(text) + 1) if line else NOWHERE
    return InvalidDocument([Diagnostic("T019", message, hint, str(path), span)], {str(path): source})


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""
