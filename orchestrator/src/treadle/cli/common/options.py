"""Arguments and options that several commands share.

Every option is also read from TREADLE_<COMMAND>_<OPTION> (`TREADLE_RUN_INTERVAL`). Options of the environment have a
shorter name too, such as TREADLE_PROFILE.

Reads the values of inputs, and resolves the run argument of a command.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import is_dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.core import TyperGroup

from treadle.primitives.errors import UsageError

from .completion import complete_file, complete_file_or_name, complete_run, complete_stage
from .exit_codes import complain

if TYPE_CHECKING:
    from treadle.client.client import Runs


FileArgument = Annotated[
    Path,
    typer.Argument(
        help="Workflow: a YAML file, or a Python file with a Workflow.", metavar="FILE", autocompletion=complete_file
    ),
]
FileOrNameArgument = Annotated[
    Path,
    typer.Argument(
        help="A workflow file, or a deployed workflow: orders, orders@3.",
        metavar="FILE|NAME[@V]",
        autocompletion=complete_file_or_name,
    ),
]
RunArgument = Annotated[
    str,
    typer.Argument(
        help="Run id, its unique prefix, @last, or an id or URL of Temporal's UI.",
        metavar="RUN",
        autocompletion=complete_run,
    ),
]
WholeRunArgument = Annotated[
    str,
    typer.Argument(
        help="Full run id, @last, or an id or URL of Temporal's UI.", metavar="RUN", autocompletion=complete_run
    ),
]
InputOption = Annotated[
    list[str] | None, typer.Option("--input", "-i", metavar="NAME=VALUE", help="A workflow input; repeatable.")
]
InputsOption = Annotated[Path | None, typer.Option("--inputs", metavar="FILE", help="YAML or JSON file of inputs.")]
ExecutorOption = Annotated[
    str | None,
    typer.Option("--executor", metavar="NAME", envvar="TREADLE_EXECUTOR", help="Executor of stages that name none."),
]
ProfileOption = Annotated[
    str | None,
    typer.Option(
        "--profile",
        metavar="NAME",
        envvar="TREADLE_PROFILE",
        help="Name of a table in profiles.toml of the home folder.",
    ),
]
AssumeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--assume", metavar="NAME=VALUE", help="For the estimate: bytes=1TB, slots=10000, rate=50MiB, start=1s."
    ),
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Check and plan; start nothing.")]
WatchOption = Annotated[bool, typer.Option("--watch", help="Then watch the run, as `treadle watch` does.")]

TextOrJson = Annotated[
    Literal["text", "json"], typer.Option("--output", "-o", envvar="TREADLE_OUTPUT", help="Output format.")
]
LogOption = Annotated[
    Literal["text", "json"],
    typer.Option("--log", envvar="TREADLE_LOG", help="Format of log lines: text or JSON objects."),
]
LogLevelOption = Annotated[
    Literal["debug", "info", "warning", "error"],
    typer.Option("--log-level", envvar="TREADLE_LOG_LEVEL", help="Minimum level of treadle's own log lines."),
]
ReasonOption = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Reason to record.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
StageOption = Annotated[
    str | None,
    typer.Option("--stage", "-s", metavar="STAGE", help="Only this stage.", autocompletion=complete_stage),
]


class Verbs(TyperGroup):
    """A group whose help does not truncate the descriptions of its commands."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, each.get_short_help_str(300)) for name, each in self.commands.items()])


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """The command for typer: each parameter whose type is a dataclass is replaced by options, the dataclass's fields.

    These options follow the command's own; `--profile` is last.
    """
    signature = inspect.signature(command, eval_str=True)
    types = {name: one.annotation for name, one in signature.parameters.items()}
    groups: dict[str, Any] = {name: one for name, one in types.items() if is_dataclass(one)}
    fields = {name: list(inspect.signature(group, eval_str=True).parameters.values()) for name, group in groups.items()}

    @wraps(command)
    def called(**values: Any) -> None:
        for name, group in groups.items():
            values[name] = group(**{one.name: values.pop(one.name) for one in fields[name]})
        command(**values)

    own = [one for name, one in signature.parameters.items() if name not in groups]
    options = [*own, *(one for several in fields.values() for one in several)]
    options.sort(key=lambda one: one.name == "profile")
    called.__signature__ = signature.replace(parameters=options)  # type: ignore[attr-defined]
    return called


def pair(text: str, option: str) -> tuple[str, str]:
    """Split `NAME=VALUE`. Raises UsageError, which names the option."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise UsageError(f"{option} {text} gives no value", f"Write {option} name=value.")
    return name, value


def read_inputs(pairs: Sequence[str] | None, file: Path | None) -> dict[str, Any]:
    """The values of `--inputs FILE`, overridden by `-i k=v`. Raises UsageError."""
    given = _inputs_file(file) if file is not None else {}
    return given | dict(pair(each, "-i") for each in pairs or ())


def _inputs_file(file: Path) -> dict[str, Any]:
    from treadle.dsl.document.loader import load_yaml

    try:
        loaded = load_yaml(file.read_text("utf-8"))
    except OSError as error:
        raise UsageError(f"--inputs {file}: {error.strerror}", "Check the name.") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"--inputs {file} is not UTF-8 text", "Save it as UTF-8.") from error
    if loaded.problems:
        problem = loaded.problems[0]
        raise UsageError(f"--inputs {file}: line {problem.span.line}: {problem.message}", problem.hint)
    if not isinstance(loaded.data, dict):
        raise UsageError(f"--inputs {file} holds no mapping", "Write `name: value` lines.")
    return dict(loaded.data)


def duration(text: str, option: str) -> float:
    """Seconds. Raises UsageError, which names the option."""
    from treadle.dsl.units import parse_duration

    try:
        return parse_duration(text)
    except ValueError as error:
        raise UsageError(f"{option}: {error}", f"Write for example {option} 10m.") from None


async def run_to_read(runs: Runs, text: str) -> str:
    """Like `find_to_read`; prints the full id to stderr if only its first part was given."""
    from treadle.client.run_lookup import find_to_read

    name = await find_to_read(runs, text)
    if name != text and name.startswith(text):
        complain(f"run {name}")
    return name


async def run_to_change(runs: Runs, text: str) -> str:
    """Like `find_to_change`."""
    from treadle.client.run_lookup import find_to_change

    return await find_to_change(runs, text)
