"""gc: give back what runs that are long over hold in the store."""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from . import words
from .environment import Environment
from .exits import Exit, complain, reported
from .options import ProfileOption, TextOrJson
from .watching import duration

if TYPE_CHECKING:
    from ..client.client import Runs
    from ..client.leftovers import Leftover


def gc(
    older_than: Annotated[
        str, typer.Option("--older-than", metavar="DURATION", help="Untouched for so long, such as 7d.")
    ] = "30d",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be removed; remove nothing.")] = False,
    output: TextOrJson = "text",
    profile: ProfileOption = None,
) -> None:
    """Remove what runs that are over hold in the store: blocks, ledgers, logs, code. Their outputs stay.

    A removed run can be neither resumed nor repeated, and shows no details any more.
    """
    with reported():
        env = Environment(profile)
        before = time.time() - duration(older_than, "--older-than")

        async def work(runs: Runs) -> Exit:
            found = await _needless(runs, before)
            if not dry_run:
                for one in found:
                    await asyncio.to_thread(_remove, runs, one.run)
            _print(found, output, dry_run=dry_run)
            return Exit.SUCCESS

        raise typer.Exit(int(env.with_runs(work)))


async def _needless(runs: Runs, before: float) -> list[Leftover]:
    from ..client.client import NoSuchRun
    from ..client.leftovers import ROOT, leftovers, needless

    async def is_open(run: str) -> bool:
        try:
            return (await runs.view(run)).open
        except NoSuchRun:
            return False

    listed = await asyncio.to_thread(lambda: list(runs.store.list(ROOT)))
    return await needless(leftovers(listed), before, is_open)


def _remove(runs: Runs, run: str) -> None:
    from ..client.leftovers import remove

    remove(runs.store, run)


def _print(found: list[Leftover], output: str, *, dry_run: bool) -> None:
    if output == "json":
        typer.echo(json.dumps(msgspec.to_builtins(found), indent=2))
    else:
        rows = [[one.run, words.number(one.objects), words.size(one.bytes)] for one in found]
        for line in words.columns([["run", "objects", "bytes"], *rows]) if rows else ():
            typer.echo(line)
    total = words.size(sum(one.bytes for one in found))
    what = f"{words.counted(len(found), 'run')}, {total}"
    complain(f"would remove {what}; nothing was removed" if dry_run else f"removed {what}")
