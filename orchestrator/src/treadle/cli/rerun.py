"""rerun: starts a new run from the submission of an earlier one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from .common.environment import Environment
from .common.exit_codes import Exit
from .common.new_run import Given
from .common.options import DryRunOption, ProfileOption, WatchOption, WholeRunArgument, run_to_change, with_options
from .run import Starting, show_dry_run, start
from .view.watcher import Watching, watch_run

if TYPE_CHECKING:
    from treadle.client.client import Runs
    from treadle.client.submission import Prepared
    from treadle.orchestrator.run_store.run_files import Submission


@with_options
def rerun(
    run: WholeRunArgument,
    given: Given,
    dry_run: DryRunOption = False,
    no_cache: Annotated[
        bool,
        typer.Option("--no-cache", help="Run all stages, cached ones too; replace their cached results."),
    ] = False,
    watch: WatchOption = False,
    profile: ProfileOption = None,
) -> None:
    """Start a new run with the workflow, code and inputs of another one, and print its id. Options override its
    inputs."""
    env = Environment(profile)

    async def work(runs: Runs) -> Exit:
        known = await runs.submission(await run_to_change(runs, run))
        prepared = prepare_again(env, known, given, cache=not no_cache)
        if dry_run:
            show_dry_run(prepared)
            return Exit.SUCCESS
        await asyncio.to_thread(env.ensure_driver)
        name = await start(env, runs, prepared, Starting())
        typer.echo(name)
        return await watch_run(env, runs, name, Watching()) if watch else Exit.SUCCESS

    raise typer.Exit(int(env.with_runs(work)))


def prepare_again(env: Environment, known: Submission, given: Given, *, cache: bool) -> Prepared:
    """Prepare a new run with the code of the old one; nothing is imported. Raises InvalidInputs, UsageError.

    Without `cache` it reuses no results of other runs. A run that an event started may access the URIs that the profile
    allows now.
    """
    from msgspec import UNSET
    from msgspec.structs import replace

    from treadle.client.submission import on_executor, planned
    from treadle.dsl.normalise import read_normalised
    from treadle.dsl.validation.inputs import resolve_inputs
    from treadle.orchestrator.run_store.run_files import NO_CACHE
    from treadle.orchestrator.run_store.uri_policy import check_allowed

    spec = read_normalised(known.spec)
    new = replace(
        on_executor(known, given.executor),
        run=given.run(spec.name),
        inputs=resolve_inputs(spec, known.inputs | given.values()),
        shared=None,
        memo={name: value for name, value in known.memo.items() if name != NO_CACHE}
        | ({} if cache else {NO_CACHE: True}),
    )
    if new.allow is not UNSET:
        new = replace(new, allow=check_allowed(env.profile.allow, new))
    files, site = env.files(known.run), env.plan_site()
    prepared = planned(new, files.code(known), replace(site, default=new.executor) if new.executor else site)
    prepared.again = files
    return prepared
