"""Registers every command by its name, without importing its module."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from .common.conversions import skip_conversions
from .common.exit_codes import finish, reported

SECTIONS: dict[str, dict[str, str]] = {
    "Write a workflow": {"init": "init", "validate": "plan", "plan": "plan", "convert": "convert", "schema": "init"},
    "Start and resume": {"run": "run", "submit": "run", "resume": "resume", "rerun": "rerun"},
    "View": {
        "watch": "watch",
        "show": "show",
        "list": "show:list_",
        "logs": "logs",
        "result": "logs",
        "report": "report",
    },
    "Control": dict.fromkeys(("pause", "unpause", "limit", "cancel", "terminate"), "steering"),
    "Events": {"deploy": "deploy", "undeploy": "deploy", "trigger": "trigger_try", "dlq": "dlq"},
    "Functions": dict.fromkeys(
        ("deploy lambda", "deploy openwhisk", "undeploy lambda", "undeploy openwhisk"), "deploy_functions"
    ),
    "Serve": {"dev": "serve", "worker": "serve", "triggers": "serve", "gc": "gc", "doctor": "doctor"},
}
"""Section of the help -> command -> its module, and its function there if the command has another name."""

_MODULES = {name.replace(" ", "-"): module for names in SECTIONS.values() for name, module in names.items()}
_TWO_WORDS = {name.replace(" ", "-") for names in SECTIONS.values() for name in names if " " in name}


class LateCommands(MutableMapping[str, Any]):
    """All commands by name. The module of a command is imported when the command is looked up."""

    def __init__(self) -> None:
        self._commands: dict[str, Any] = dict.fromkeys(_MODULES)

    def __getitem__(self, name: str) -> Any:
        if self._commands[name] is None:
            self._commands[name] = _imported(name)
        return self._commands[name]

    def __setitem__(self, name: str, command: Any) -> None:
        self._commands[name] = command

    def __delitem__(self, name: str) -> None:
        del self._commands[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._commands)

    def __len__(self) -> int:
        return len(self._commands)


def _imported(name: str) -> Any:
    module, _, attribute = _MODULES[name].partition(":")
    found = getattr(import_module(f".{module}", __package__), attribute or name.replace("-", "_"))
    whole = typer.Typer(add_completion=False, rich_markup_mode=None)
    if isinstance(found, typer.Typer):
        whole.add_typer(found, name=name)
    else:
        whole.command(name)(found)
    return typer.main.get_group(whole).commands[name]


class Commands(TyperGroup):
    """Groups commands by purpose. Rich could do this too, but its import takes a quarter of a second."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = LateCommands()
        skip_conversions(self)

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        return list(self.commands)

    def invoke(self, ctx: Any) -> Any:
        with reported():
            return super().invoke(ctx)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        found = super().get_command(ctx, cmd_name)
        return found and _readable(found)

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        """Commands and options; `deploy-lambda` and its like are written `deploy lambda`."""
        return [item for item in super().shell_complete(ctx, incomplete) if item.value not in _TWO_WORDS]

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        for title, names in SECTIONS.items():
            with formatter.section(title):
                known = [(name, self.commands[name.replace(" ", "-")]) for name in names]
                formatter.write_dl([(name, command.get_short_help_str(300)) for name, command in known])

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Resolve `deploy lambda`, `undeploy lambda` and the like to commands of their own, unless a file has that
        name."""
        name = "-".join(args[:2])
        if name in _TWO_WORDS and not Path(args[1]).exists():
            found = _readable(self.commands[name])
            found.context_settings["auto_envvar_prefix"] = f"TREADLE_{name.upper().replace('-', '_')}"
            return " ".join(args[:2]), found, args[2:]
        return super().resolve_command(ctx, args)


def _readable(command: Any) -> Any:
    """Simplify the command's help: no Python types after arguments, and no environment variables that follow the rule
    stated in the help of all commands."""
    skip_conversions(command)
    for parameter in command.params:
        parameter.show_envvar = bool(getattr(parameter, "envvar", None))
        if parameter.param_type_name == "argument":
            parameter.display_type_rich = lambda ctx: None  # noqa: ARG005
    for inner in getattr(command, "commands", {}).values():
        _readable(inner)
    return command


app = typer.Typer(
    name="treadle",
    cls=Commands,
    help="Declarative workflows for data-parallel work, run durably.",
    epilog="Every option is also read from TREADLE_<COMMAND>_<OPTION>.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"auto_envvar_prefix": "TREADLE", "help_option_names": ["--help", "-h"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"treadle {version('treadle-orchestrator')}")
        raise typer.Exit


@app.callback()
def treadle(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_version, show_envvar=False, help="Print the version.")
    ] = False,
) -> None:
    """Declarative workflows for data-parallel work, run durably."""


def execute() -> NoReturn:
    """Run the command line and end the process.

    The process ends at once. Threads of native libraries may still run, and a thread that calls into a half-finalised
    interpreter would kill the process after its work was done.
    """
    try:
        app()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    finish(code)
