"""Arguments and options that several commands share.

Every option is also read from TREADLE_<COMMAND>_<OPTION> (`TREADLE_RUN_INTERVAL`); those that concern the environment
have a shorter name too, such as TREADLE_PROFILE.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperGroup

from treadle.primitives.errors import UsageError

FileArgument = Annotated[
    Path, typer.Argument(help="Workflow: a YAML file, or a Python file with a Workflow.", metavar="FILE")
]
FileOrNameArgument = Annotated[
    Path, typer.Argument(help="A workflow file, or a deployed workflow: orders, orders@3.", metavar="FILE|NAME[@V]")
]
RunArgument = Annotated[
    str, typer.Argument(help="Run id, a unique beginning of one, @last, or what Temporal calls it.", metavar="RUN")
]
InputOption = Annotated[
    list[str] | None, typer.Option("--input", "-i", metavar="NAME=VALUE", help="A workflow input; repeatable.")
]
InputsOption = Annotated[Path | None, typer.Option("--inputs", metavar="FILE", help="YAML or JSON file of inputs.")]
IdOption = Annotated[str | None, typer.Option("--id", metavar="RUN", help="Run id; made up when not given.")]
IfExistsOption = Annotated[
    Literal["fail", "use", "terminate"],
    typer.Option("--if-exists", envvar="TREADLE_IF_EXISTS", help="When the id exists already."),
]
DelayOption = Annotated[
    str | None, typer.Option("--start-delay", metavar="DURATION", help="Begin so much later, such as 10m.")
]
ExecutorOption = Annotated[
    str | None,
    typer.Option(
        "--executor", metavar="NAME", envvar="TREADLE_EXECUTOR", help="Where stages run that name no executor."
    ),
]
ProfileOption = Annotated[
    str | None,
    typer.Option(
        "--profile", metavar="NAME", envvar="TREADLE_PROFILE", help="Table of profiles.toml in the home folder."
    ),
]
AssumeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--assume", metavar="NAME=VALUE", help="For the estimate: bytes=1TB, slots=10000, rate=50MiB, start=1s."
    ),
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Check and plan; start nothing.")]

TextOrJson = Annotated[
    Literal["text", "json"], typer.Option("--output", "-o", envvar="TREADLE_OUTPUT", help="How to print the data.")
]
WatchOutput = Annotated[
    Literal["text", "jsonl"], typer.Option("--output", "-o", help="jsonl: every change as a JSON line on stdout.")
]
CompactOption = Annotated[bool, typer.Option("--compact", help="Only stages that are under way.")]
IntervalOption = Annotated[
    float,
    typer.Option("--interval", metavar="SECONDS", envvar="TREADLE_INTERVAL", min=0.1, help="Between two looks."),
]
TimeoutOption = Annotated[
    str | None, typer.Option("--timeout", metavar="DURATION", help="Stop watching then, with exit code 124.")
]
FailFastOption = Annotated[bool, typer.Option("--fail-fast", help="Stop watching at the first final failure.")]
LogsOption = Annotated[bool, typer.Option("--logs", help="Also show what attempts print, and their errors.")]
ExitStatusOption = Annotated[
    bool, typer.Option("--exit-status/--no-exit-status", help="End with the run's own exit code.")
]
LogOption = Annotated[
    Literal["text", "json"], typer.Option("--log", envvar="TREADLE_LOG", help="Log lines for people, or JSON objects.")
]
LogLevelOption = Annotated[
    Literal["debug", "info", "warning", "error"],
    typer.Option("--log-level", envvar="TREADLE_LOG_LEVEL", help="Least level of treadle's own log lines."),
]
ReasonOption = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Kept with what is stopped.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
StageOption = Annotated[str | None, typer.Option("--stage", "-s", metavar="STAGE", help="Only this stage.")]


class Verbs(TyperGroup):
    """A group whose help does not cut off what its commands do."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, each.get_short_help_str(300)) for name, each in self.commands.items()])


def duration(text: str, option: str) -> float:
    """Seconds. Raises UsageError, which names the option."""
    from treadle.dsl.quantities import parse_duration

    try:
        return parse_duration(text)
    except ValueError as error:
        raise UsageError(f"{option}: {error}", f"Write for example {option} 10m.") from None
