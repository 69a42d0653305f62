"""schema and init: the files needed to write a workflow."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from treadle.primitives.errors import UsageError

from .common.exit_codes import complain, writing

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable


def schema() -> None:
    """Print the JSON Schema of workflow documents, for editors."""
    from treadle.dsl.schema import published

    typer.echo(published(), nl=False)


def init(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Target folder; created if missing.")] = Path("."),
    template: Annotated[
        Literal["wordcount", "etl"], typer.Option("--template", "-t", help="The example to start from.")
    ] = "wordcount",
    force: Annotated[bool, typer.Option("--force", help="Replace existing files.")] = False,
) -> None:
    """Create an example workflow with its functions, some data, and the schema for your editor."""
    from treadle.dsl.schema import FILE, published

    made = dict(_texts(files(__package__) / "skeletons" / template))
    made[FILE] = published()
    there = [name for name in made if name != FILE and (folder / name).exists()]
    if there and not force:
        raise UsageError(f"{folder / there[0]} is there already", "Choose another folder, or --force.")
    _write(folder, made)
    complain(f"made {', '.join(sorted(made))} in {folder}")
    complain(f"  treadle run {folder / f'{template}.yaml'}")


def _texts(folder: Traversable, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Name -> content of every file below the folder."""
    for entry in folder.iterdir():
        if entry.is_file():
            yield f"{prefix}{entry.name}", entry.read_text("utf-8")
        elif entry.name != "__pycache__":
            yield from _texts(entry, f"{prefix}{entry.name}/")


def _write(folder: Path, made: dict[str, str]) -> None:
    with writing("Choose another folder."):
        for name, text in made.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
