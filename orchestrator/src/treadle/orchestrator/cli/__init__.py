"""The command line. stdout carries data, stderr everything else; exit codes are in docs/cli.md."""

from __future__ import annotations

import typer

from . import serving, starting

app = typer.Typer(
    name="treadle",
    help="Declarative workflows for data-parallel work, run durably.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.command()(starting.run)
app.command()(starting.submit)
app.command()(starting.resume)
app.command()(serving.worker)


def main() -> None:
    """Entry point of `treadle`."""
    app()
