"""Arguments and options that several commands share. Every option is also read from TREADLE_<NAME>."""

from __future__ import annotations

from collections.abc import Sequence  # noqa: F401
from pathlib import Path
from typing import Annotated, Literal

import typer

FileArgument = Annotated[Path, typer.Argument(help="Workflow: a YAML file, or a Python file with a Workflow.")]
RunArgument = Annotated[str, typer.Argument(help="Run id, a unique beginning of one, or @last.")]
InputOption = Annotated[list[str], typer.Option("--input", "-i", metavar="NAME=VALUE", help="A workflow input.")]
InputsOption = Annotated[Path | None, typer.Option("--inputs", help="YAML or JSON file of inputs.")]
IdOption = Annotated[str | None, typer.Option("--id", help="Run id; made up when not given.")]
IfExistsOption = Annotated[
    Literal["fail", "use", "terminate"],
    typer.Option("--if-exists", envvar="TREADLE_IF_EXISTS", help="When the id exists already."),
]
ProfileOption = Annotated[
    str | None, typer.Option("--profile", envvar="TREADLE_PROFILE", help="Table of profiles.toml in the home folder.")
]
