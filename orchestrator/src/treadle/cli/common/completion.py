"""Shell completion of run ids, stages, workflow files, deployed workflows and triggers.

A completer starts no server and no driver, makes no home, prints nothing, and answers within `TIME_LIMIT`. Without an
answer the shell completes file names.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

import typer

from treadle.primitives.run_paths import CHILD, run_folder

if TYPE_CHECKING:
    from treadle.client.client import Runs

    from .environment import Environment

TIME_LIMIT = 1.5
"""Seconds."""
_MOST_RUNS = 100
_SUFFIXES = (".yaml", ".yml", ".py")
_PROVIDERS = ("lambda", "openwhisk")

Find = Callable[["Environment", str], Iterable[str]]


def complete_run(ctx: typer.Context, incomplete: str) -> list[str]:
    """The newest runs that begin with the text; below `nightly/` the children of that run."""
    return _complete(ctx, incomplete, _runs)


def complete_stage(ctx: typer.Context, incomplete: str) -> list[str]:
    """The stages of the run that the command line names."""
    run = ctx.params.get("run") or next(iter(ctx.args), "")  # in `args` while an option has no value yet
    return _complete(ctx, incomplete, lambda env, _: _stages(env, run))


def complete_deployed(ctx: typer.Context, incomplete: str) -> list[str]:
    """The deployed workflows."""
    return _complete(ctx, incomplete, lambda env, _: _deployed(env))


def complete_trigger(ctx: typer.Context, incomplete: str) -> list[str]:
    """The deployed triggers, such as `orders.live`."""
    return _complete(ctx, incomplete, lambda env, _: _triggers(env))


def complete_file(incomplete: str) -> list[str]:
    """Workflow files. Without one that begins with the text, the shell completes paths to other folders."""
    folder, _, start = incomplete.rpartition("/")
    try:
        names = sorted(path.name for path in Path(folder or ("/" if incomplete[:1] == "/" else ".")).iterdir())
    except OSError:
        return []
    before = incomplete.removesuffix(start)
    return [before + name for name in names if name.startswith(start) and name.endswith(_SUFFIXES)]


def complete_deploy(incomplete: str) -> list[str]:
    """Workflow files, and the second words of `deploy lambda` and `deploy openwhisk`."""
    return [*complete_file(incomplete), *(name for name in _PROVIDERS if name.startswith(incomplete))]


def complete_undeploy(ctx: typer.Context, incomplete: str) -> list[str]:
    """Deployed workflows, and the second words of `undeploy lambda` and `undeploy openwhisk`."""
    return [*complete_deployed(ctx, incomplete), *(name for name in _PROVIDERS if name.startswith(incomplete))]


def complete_file_or_name(ctx: typer.Context, incomplete: str) -> list[str]:
    """Workflow files and deployed workflows."""
    return [*complete_file(incomplete), *complete_deployed(ctx, incomplete)]


def _complete(ctx: typer.Context, incomplete: str, find: Find) -> list[str]:
    found: list[str] = []

    def look() -> None:
        with suppress(Exception):  # a message would spoil the line that the user types
            if env := _environment(ctx):
                found.extend(name for name in find(env, incomplete) if name.startswith(incomplete))

    thread = Thread(target=look, daemon=True)
    thread.start()
    thread.join(TIME_LIMIT)
    return list(found)


def _environment(ctx: typer.Context) -> Environment | None:
    """None without a home: opening it would make its folders."""
    from .environment import Environment

    home = Path(os.environ.get("TREADLE_HOME") or "~/.treadle").expanduser()
    return Environment(ctx.params.get("profile")) if home.is_dir() else None


def _runs(env: Environment, incomplete: str) -> Iterable[str]:
    """From the folders of a store on this host, otherwise from Temporal."""
    root = env.store.path("runs")
    parent = incomplete.rpartition("/")[0]
    if root is None:
        return _listed_runs(env, incomplete)
    if parent:
        children = (root / run_folder(parent)).glob(f"{CHILD}*")
        return sorted(f"{parent}/{path.name.removeprefix(CHILD)}" for path in children)
    matching = [path for path in root.iterdir() if path.name.startswith(incomplete)]
    matching.sort(key=lambda path: path.stat().st_mtime, reverse=True)
    return [path.name for path in matching[:_MOST_RUNS]]


def _listed_runs(env: Environment, prefix: str) -> list[str]:
    """From Temporal; none when the embedded server does not run."""
    import asyncio

    from treadle.orchestrator import embedded

    async def names(runs: Runs) -> list[str]:
        return [view.run async for view in runs.list_runs(_MOST_RUNS, prefix=prefix)]

    async def work() -> list[str]:
        return await names(await env.open_runs())

    if env.settings.embedded and embedded.running_server(env.home) is None:
        return []
    return asyncio.run(work())


def _stages(env: Environment, run: str) -> Iterable[str]:
    from treadle.orchestrator.plan.plan import Plan

    if run == "@last":
        run = next(iter(_runs(env, "")), "")
    plan = env.files(run).find(Plan, "plan") if run else None
    return dict.fromkeys(stage for node in plan.graph.nodes for stage in node.stages) if plan else ()


def _deployed(env: Environment) -> Iterable[str]:
    return [one.workflow for one in env.registry.deployments()]


def _triggers(env: Environment) -> Iterable[str]:
    return [f"{one.workflow}.{name}" for one in env.registry.deployments() for name in sorted(one.spec.triggers)]
