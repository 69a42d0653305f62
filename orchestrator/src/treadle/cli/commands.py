"""Registers every command by its name."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from . import (
    convert,
    deploy,
    deploy_functions,
    dlq,
    doctor,
    gc,
    init,
    logs,
    plan,
    report,
    rerun,
    resume,
    run,
    serve,
    show,
    steering,
    trigger,
    trigger_try,
    watch,
)
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
for command in (
    init.init,
    init.schema,
    plan.validate,
    plan.plan,
    convert.convert,
    run.run,
    run.submit,
    resume.resume,
    rerun.rerun,
    watch.watch,
    show.show,
    logs.logs,
    logs.result,
    report.report,
    steering.pause,
    steering.unpause,
    steering.limit,
    steering.cancel,
    steering.terminate,
    deploy.deploy,
    deploy.undeploy,
    deploy_functions.deploy_lambda,
    deploy_functions.deploy_openwhisk,
    deploy_functions.undeploy_lambda,
    deploy_functions.undeploy_openwhisk,
    serve.worker,
    serve.triggers,
    gc.gc,
    doctor.doctor,
):
    app.command()(command)
app.command("list")(show.list_)
trigger.trigger.command("test")(trigger_try.try_)
trigger.trigger.command()(trigger_try.fire)
trigger.trigger.command()(trigger_try.backfill)
trigger.trigger.command()(trigger_try.seek)
app.add_typer(trigger.trigger, name="trigger")
app.add_typer(dlq.dlq, name="dlq")
app.add_typer(serve.dev, name="dev")


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
