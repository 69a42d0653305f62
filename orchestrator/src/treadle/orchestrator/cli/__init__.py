"""The command line. stdout carries data, stderr everything else; exit codes are in docs/cli.md.

General layout: `options` and `exits` (what commands share), `environment` and `documents` (what they work with), and a
module for each family of commands: `planning`, `starting`, `watching` (with `screens`), `showing`, `reading`,
`resuming`, `steering`, `serving`, `making`, `doctor`. `picture` and `following` read a run from its store. Modules of
commands import nothing heavy at their top, since every command pays for all of them.
"""

from __future__ import annotations

from typing import Annotated

import typer

from . import doctor, making, planning, reading, resuming, serving, showing, starting, steering, watching

app = typer.Typer(
    name="treadle",
    help="Declarative workflows for data-parallel work, run durably.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"auto_envvar_prefix": "TREADLE", "help_option_names": ["--help", "-h"]},
)

WRITE, START, LOOK, STEER, SERVE = "Write a workflow", "Start and go on", "Look", "Steer", "Serve"
app.command(rich_help_panel=WRITE)(making.init)
app.command(rich_help_panel=WRITE)(planning.validate)
app.command("lint", hidden=True)(planning.validate)
app.command(rich_help_panel=WRITE)(planning.plan)
app.command(rich_help_panel=WRITE)(making.schema)
app.command(rich_help_panel=START)(starting.run)
app.command(rich_help_panel=START)(starting.submit)
app.command(rich_help_panel=START)(resuming.resume)
app.command(rich_help_panel=LOOK)(watching.watch)
app.command(rich_help_panel=LOOK)(showing.show)
app.command("list", rich_help_panel=LOOK)(showing.list_)
app.command(rich_help_panel=LOOK)(reading.logs)
app.command(rich_help_panel=LOOK)(reading.result)
app.command(rich_help_panel=STEER)(steering.pause)
app.command(rich_help_panel=STEER)(steering.unpause)
app.command(rich_help_panel=STEER)(steering.limit)
app.command(rich_help_panel=STEER)(steering.cancel)
app.command(rich_help_panel=STEER)(steering.terminate)
app.command(rich_help_panel=SERVE)(serving.worker)
app.add_typer(serving.dev, name="dev", rich_help_panel=SERVE)
app.command(rich_help_panel=SERVE)(doctor.doctor)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"treadle {version('treadle-orchestrator')}")
        raise typer.Exit


@app.callback()
def treadle(
    version: Annotated[bool, typer.Option("--version", is_eager=True, callback=_version, help="Print it.")] = False,
) -> None:
    """Declarative workflows for data-parallel work, run durably."""


def main() -> None:
    """Entry point of `treadle`."""
    app()
