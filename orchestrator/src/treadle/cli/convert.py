"""convert: a workflow in its other form."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .common.exit_codes import complain, writing
from .common.options import FileArgument


def convert(
    file: FileArgument,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Output file. Default, and `-`: stdout."),
    ] = None,
) -> None:
    """Convert a YAML workflow to Python, or a Python one to YAML: the same document. Comments are lost."""
    text = _converted(file)
    if output is None or str(output) == "-":
        typer.echo(text, nl=False)
        return
    with writing(), output.open("x", encoding="utf-8") as new:
        new.write(text)
    complain(f"wrote {output}")


def _converted(file: Path) -> str:
    from treadle.client.documents import read_document, read_workflow

    if file.suffix == ".py":
        return read_workflow(file).to_yaml()
    from treadle.dsl.convert.python import to_python
    from treadle.dsl.diagnostics.diagnostics import has_errors
    from treadle.dsl.document.document import InvalidDocument
    from treadle.dsl.validation.validate import validate

    document, _ = read_document(file)
    found = validate(document)
    if has_errors(found):
        raise InvalidDocument(found, document.sources)
    return to_python(document.require())
