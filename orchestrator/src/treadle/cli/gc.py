"""gc: removes the stored data of runs that ended long ago."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Annotated

import typer

from treadle.primitives.errors import CorruptError

from .common import formatting
from .common.environment import Environment
from .common.exit_codes import complain, say_json
from .common.options import ProfileOption, TextOrJson, duration

if TYPE_CHECKING:
    from treadle.client.client import Runs
    from treadle.primitives.stores.store import ObjectInfo


def gc(
    older_than: Annotated[
        str, typer.Option("--older-than", metavar="DURATION", help="Minimum age since the last write, such as 7d.")
    ] = "30d",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be removed; remove nothing.")] = False,
    output: TextOrJson = "text",
    profile: ProfileOption = None,
) -> None:
    """Remove the stored data of ended runs: blocks, ledgers, logs, code, and in-memory inputs. Their outputs stay.

    A removed run can be neither resumed nor repeated, and shows no details any more. Data that `cache` keeps of it
    stays until its ttl expires; then it is removed too. An in-memory input stays as long as a stored run has it.
    """
    env = Environment(profile)
    before = time.time() - duration(older_than, "--older-than")

    from treadle.client.garbage_collection import remove_all, separated

    async def work(runs: Runs) -> None:
        expired, lent = await asyncio.to_thread(_cached, env, dry_run=dry_run)
        listed, gone = await _ended(runs, before)
        objects, kept = separated(listed, gone, lent)
        if not dry_run:
            await asyncio.to_thread(remove_all, runs.store, objects, kept)
        inputs = await asyncio.to_thread(_inputs, runs, gone, before, dry_run=dry_run)
        results = f"{formatting.counted(expired, 'cached result')} past the ttl" if expired else ""
        _print(objects, [inputs, results], output, dry_run=dry_run)

    env.with_runs(work)


def _cached(env: Environment, *, dry_run: bool) -> tuple[int, dict[str, set[str]]]:
    """Remove expired cache entries. Returns their number, and for each run its segments whose blocks other entries
    use."""
    from treadle.orchestrator.reuse.cache_entries import Entries, lent_segments

    entries, now = Entries(env.store, env.key), time.time()
    found = list(entries.kept(lambda error: complain(f"a cached result cannot be used: {error}")))
    old = {entry.key for entry in found if entry.age(now) > entry.ttl}
    if not dry_run:
        entries.remove(old)
    return len(old), lent_segments(entry for entry in found if entry.key not in old)


async def _ended(runs: Runs, before: float) -> tuple[list[ObjectInfo], set[str]]:
    """The objects of all runs; the runs to remove."""
    from treadle.client.garbage_collection import ROOT, leftovers, needless
    from treadle.orchestrator.run_requests.requests import NoSuchRun

    async def is_open(run: str) -> bool:
        try:
            return (await runs.view(run)).open
        except NoSuchRun:
            return False

    listed = await asyncio.to_thread(lambda: list(runs.store.list(ROOT)))
    return listed, {one.run for one in await needless(leftovers(listed), before, is_open)}


def _inputs(runs: Runs, gone: set[str], before: float, *, dry_run: bool) -> str:
    """Remove the in-memory inputs that no other run has. Returns their number and size as text; empty: none."""
    from treadle.client.garbage_collection import unused_inputs

    try:
        found = unused_inputs(runs.store, gone, before, runs.files)
    except CorruptError as error:
        complain(f"in-memory inputs stay, because it is not known which of them are in use: {error}")
        return ""
    if not dry_run:
        runs.store.delete(info.name for info in found)
    sizes = [info.size for info in found if info.size]  # marks are empty
    return f"{formatting.counted(len(sizes), 'input')}, {formatting.size(sum(sizes))}" if sizes else ""


def _print(objects: list[ObjectInfo], more: list[str], output: str, *, dry_run: bool) -> None:
    """`more`: other things that were removed, as text."""
    from treadle.client.garbage_collection import leftovers

    found = leftovers(objects)
    if output == "json":
        say_json(found)
    else:
        rows = [[one.run, formatting.number(one.objects), formatting.size(one.bytes)] for one in found]
        for line in formatting.columns([["run", "objects", "bytes"], *rows]) if rows else ():
            typer.echo(line)
    total = formatting.size(sum(one.bytes for one in found))
    what = "; ".join(filter(None, [f"{formatting.counted(len(found), 'run')}, {total}", *more]))
    complain(f"would remove {what}; nothing was removed" if dry_run else f"removed {what}")
