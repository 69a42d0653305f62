"""Registers every command by its name."""

from __future__ import annotations

import sys
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from .common.exit_codes import finish, reported

SECTIONS = {
    "Write a workflow": ("init", "validate", "plan", "convert", "schema"),
    "Start and resume": ("run", "submit", "resume", "rerun"),
    "View": ("watch", "show", "list", "logs", "result", "report"),
    "Control": ("pause", "unpause", "limit", "cancel", "terminate"),
    "Events": ("deploy", "undeploy", "trigger", "dlq"),
    "Functions": ("deploy lambda", "deploy openwhisk", "undeploy lambda", "undeploy openwhisk"),
    "Serve": ("dev", "worker", "triggers", "gc", "doctor"),
}


_MODULES = {
    **dict.fromkeys(("init", "schema"), "init"),
    **dict.fromkeys(("validate", "plan"), "plan"),
    "convert": "convert",
    **dict.fromkeys(("run", "submit"), "run"),
    "resume": "resume",
    "rerun": "rerun",
    "watch": "watch",
    **dict.fromkeys(("show", "list"), "show"),
    **dict.fromkeys(("logs", "result"), "logs"),
    "report": "report",
    **dict.fromkeys(("pause", "unpause", "limit", "cancel", "terminate"), "steering"),
    **dict.fromkeys(("deploy", "undeploy"), "deploy"),
    **dict.fromkeys(("deploy-lambda", "deploy-openwhisk", "undeploy-lambda", "undeploy-openwhisk"), "deploy_functions"),
    **dict.fromkeys(("worker", "triggers"), "serve"),
    "gc": "gc",
    "doctor": "doctor",
}
"""Command -> its module in this package. Groups of commands are not in it."""
_TWO_WORDS = {name.replace(" ", "-") for names in SECTIONS.values() for name in names if " " in name}


class Commands(TyperGroup):
    """Groups commands by purpose. Rich could do this too, but its import takes a quarter of a second."""

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
    for parameter in command.params:
        parameter.show_envvar = bool(getattr(parameter, "envvar", None))
        if parameter.param_type_name == "argument":
            parameter.display_type_rich = lambda ctx: None  # noqa: ARG005
    for inner in getattr(command, "commands", {}).values():
        _readable(inner)
    return command


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"treadle {version('treadle-orchestrator')}")
        raise typer.Exit


def treadle(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_version, show_envvar=False, help="Print the version.")
    ] = False,
) -> None:
    """Declarative workflows for data-parallel work, run durably."""


def application(name: str) -> typer.Typer:
    """The command line with one command, because each module of a command takes time to import."""
    app = _empty()
    _register(app, name)
    return app


@cache
def whole_application() -> typer.Typer:
    """The command line with all commands, for help, completion and groups of commands."""
    from . import dlq, serve, trigger, trigger_try

    app = _empty()
    for name in _MODULES:
        _register(app, name)
    trigger.trigger.command("test")(trigger_try.try_)
    for verb in (trigger_try.fire, trigger_try.backfill, trigger_try.seek):
        trigger.trigger.command()(verb)
    for group, title in ((trigger.trigger, "trigger"), (dlq.dlq, "dlq"), (serve.dev, "dev")):
        app.add_typer(group, name=title)
    return app


def _empty() -> typer.Typer:
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
    app.callback()(treadle)
    return app


def _register(app: typer.Typer, name: str) -> None:
    module = import_module(f".{_MODULES[name]}", __package__)
    function = "list_" if name == "list" else name.replace("-", "_")
    app.command(name)(getattr(module, function))


def execute() -> NoReturn:
    """Run the command line and end the process.

    The process ends at once. Threads of native libraries may still run, and a thread that calls into a half-finalised
    interpreter would kill the process after its work was done.
    """
    name = next(iter(sys.argv[1:]), "")
    alone = name in _MODULES and name not in ("deploy", "undeploy")  # `deploy lambda` is another command
    try:
        (application(name) if alone else whole_application())()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    finish(code)
