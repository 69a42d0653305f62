"""report: an HTML page about a run."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from treadle.primitives.errors import UsageError

from .common.environment import Environment
from .common.exit_codes import complain, writing
from .common.options import ProfileOption, RunArgument, run_to_read

if TYPE_CHECKING:
    from treadle.client.client import Runs


def report(
    run: RunArgument,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Output file; `-` for stdout. Default: RUN.html"),
    ] = None,
    profile: ProfileOption = None,
) -> None:
    """Write an HTML page about a run: its graph, timeline, stages, errors and outputs. Needs no driver."""
    env = Environment(profile)

    async def work(runs: Runs) -> tuple[str, str]:
        name = await run_to_read(runs, run)
        return name, await _page(env, runs, name)

    name, page = env.with_runs(work)
    if str(output) == "-":
        typer.echo(page)
        return
    path = output or Path(f"{name.replace('/', '-')}.html")
    with writing("Name another file with -o."):
        path.write_text(page, "utf-8")
    complain(f"wrote {path}")


async def _page(env: Environment, runs: Runs, run: str) -> str:
    from treadle.client.attempt_logs import LogFollower, grouped
    from treadle.orchestrator.plan.plan import Plan

    from .view.report.facts import gather
    from .view.report.page import render
    from .view.run_inputs import inputs_of

    view = await runs.view(run)
    end = None if view.open else await runs.end(run)
    files = env.files(run)
    plan = files.find(Plan, "plan")
    if plan is None:
        raise UsageError(f"no driver has taken up run {run} yet: there is nothing to report", "See: treadle doctor")
    logged = LogFollower(files).new()
    facts = gather(files, plan, logged)
    return render(view, end, facts, grouped(logged), datetime.now(UTC), inputs_of(files))
