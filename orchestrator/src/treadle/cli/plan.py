"""validate and plan: checks and predictions before a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from msgspec import to_builtins

from .common import formatting
from .common.completion import complete_file, complete_run
from .common.environment import Environment
from .common.exit_codes import Exit, complain, say_json
from .common.new_run import Given, prepare_file
from .common.options import (
    AssumeOption,
    ExecutorOption,
    FileArgument,
    InputOption,
    InputsOption,
    ProfileOption,
    TextOrJson,
)
from .view.plan_text import show_plan

if TYPE_CHECKING:
    from treadle.dsl.diagnostics.diagnostics import Diagnostic
    from treadle.orchestrator.cost.estimate import Assumed
    from treadle.orchestrator.plan.plan import Plan


def validate(
    files: Annotated[list[Path], typer.Argument(help="Workflow files.", metavar="FILE", autocompletion=complete_file)],
    strict: Annotated[bool, typer.Option("--strict", help="Warnings count as errors.")] = False,
    format: Annotated[
        Literal["text", "json", "sarif", "github"], typer.Option("--format", help="Output format of the findings.")
    ] = "text",
    no_import: Annotated[bool, typer.Option("--no-import", help="Do not import the functions.")] = False,
) -> None:
    """Check documents without running anything: keys, types, references, expressions, functions."""
    from treadle.dsl.diagnostics.formats import format_diagnostics

    found: list[Diagnostic] = []
    for file in files:
        mine, sources = _check(file, functions=not no_import)
        found += mine
        if format == "text" and mine:
            typer.echo(format_diagnostics(mine, "text", sources), nl=False)
    if format != "text":
        typer.echo(format_diagnostics(found, format), nl=False)
    raise typer.Exit(int(_verdict(found, len(files), strict)))


def _check(file: Path, *, functions: bool) -> tuple[list[Diagnostic], dict[str, str]]:
    from treadle.client.documents import findings, read_document

    document, _ = read_document(file)
    return findings(document, file.absolute().parent, functions=functions), document.sources


def _verdict(found: list[Diagnostic], files: int, strict: bool) -> Exit:
    errors = sum(one.severity == "error" for one in found)
    warnings = len(found) - errors
    if not found:
        complain(f"{formatting.counted(files, 'document')} valid")
    else:
        complain(f"{formatting.counted(errors, 'error')}, {formatting.counted(warnings, 'warning')}")
    return Exit.INVALID_DOCUMENT if errors or (strict and warnings) else Exit.SUCCESS


def plan(
    file: FileArgument,
    input: InputOption = None,
    inputs: InputsOption = None,
    graph: Annotated[Literal["mermaid", "dot"] | None, typer.Option("--graph", help="Print the graph only.")] = None,
    executor: ExecutorOption = None,
    cost: Annotated[bool, typer.Option("--cost", help="Also estimate tasks, waves, requests, time and cost.")] = False,
    assume: AssumeOption = None,
    against: Annotated[
        str | None,
        typer.Option(
            "--against",
            metavar="RUN",
            autocompletion=complete_run,
            help="For each stage, show its differences from that run.",
        ),
    ] = None,
    output: TextOrJson = "text",
    profile: ProfileOption = None,
) -> None:
    """Explain a run before it starts: segments, partitions, destinations of data, cached results. Starts nothing."""
    from treadle.orchestrator.planner import explain

    from .view.costs import read_assumed, supposing
    from .view.reuse_text import beside, cache_notes, difference_lines, find_kept, find_run, kept_json

    env = Environment(profile)
    assumed = read_assumed(assume or [])
    site = supposing(env.plan_site(), assumed)
    prepared = prepare_file(env, file, Given(input, inputs, "RUN", executor), site)
    made, kept = prepared.plan, find_kept(env, prepared)
    other = find_run(env, against) if against else ""
    differences = beside(env, made, prepared.submission, other) if other else []
    if graph:
        typer.echo(explain.mermaid(made) if graph == "mermaid" else explain.dot(made), nl=False)
    elif output == "json":
        more = {"kept": kept_json(kept), "against": differences if other else None}
        say_json(explain.as_json(made) | _estimate(env, made, assumed) | more)
    else:
        show_plan(made, cache_notes(made, kept))
        if other:
            typer.echo("\n".join([f"beside run {other}:", *difference_lines(other, differences)]))
        if cost or assume:
            _show_estimate(env, made, assumed)


def _estimate(env: Environment, plan: Plan, assumed: Assumed) -> dict[str, Any]:
    from .view.costs import estimated

    made, seconds = estimated(env, plan, assumed)
    return {"estimate": {**to_builtins(made), "elapsed": seconds, "assumed": assumed}}


def _show_estimate(env: Environment, plan: Plan, assumed: Assumed) -> None:
    from .view.costs import estimate_lines, estimated

    typer.echo("\n".join(["", *estimate_lines(*estimated(env, plan, assumed), assumed)]))
