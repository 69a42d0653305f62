"""watch: counts while a run goes on, its result at the end, and the exit code that says how it went."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import TYPE_CHECKING, Any

import typer

from .environment import Environment
from .exits import Exit

if TYPE_CHECKING:
    from ..client import RunEnd, Runs, RunView

INTERVAL = 0.5


def watch_run(env: Environment, run: str) -> None:
    """Watch to the end; raises typer.Exit with the run's code."""
    end = env.with_runs(lambda runs: _watch(runs, run))
    raise typer.Exit(int(show_end(run, end)))


async def _watch(runs: Runs, run: str) -> RunEnd:
    ended = asyncio.ensure_future(runs.end(run))
    last = ""
    while True:
        done, _ = await asyncio.wait([ended], timeout=INTERVAL)
        if done:
            return ended.result()
        line = plain_line(await runs.view(run))
        if line and line != last:
            print(f"{time.strftime('%H:%M:%S')} {line}", file=sys.stderr)  # noqa: T201
            last = line


def plain_line(view: RunView) -> str:
    """One line of counts for people without a terminal."""
    parts = []
    for node in view.nodes:
        for one in node.progress:
            retried = f", {one.retried} retried" if one.retried else ""
            parts.append(f"{one.segment} {one.committed}/{one.partitions}{retried}")
    return "; ".join(parts)


def show_end(run: str, end: RunEnd) -> Exit:
    """Outputs on stdout, the reason of a failure on stderr."""
    if end.state == "succeeded":
        print(f"run {run} succeeded", file=sys.stderr)  # noqa: T201
        _print_outputs(end.outputs)
        return Exit.SUCCESS
    failure = end.failure
    reason = f": {failure.failure}: {failure.message}" if failure else ""
    print(f"run {run} {end.state}{reason}", file=sys.stderr)  # noqa: T201
    if end.state in ("cancelled", "terminated"):
        return Exit.CANCELLED
    print(f"  see: treadle logs {run}; mend the cause, then: treadle resume {run}", file=sys.stderr)  # noqa: T201
    return Exit.RUN_FAILED


def _print_outputs(outputs: dict[str, Any]) -> None:
    if outputs:
        typer.echo(json.dumps(outputs, indent=2, ensure_ascii=False))
