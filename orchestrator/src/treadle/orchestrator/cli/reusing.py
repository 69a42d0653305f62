"""What of a run is there already, and how it differs from another: for plan and resume."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .exits import CommandFailed, Exit, complain
from .words import span

if TYPE_CHECKING:
    from ..client.submission import Prepared
    from ..plan import Plan
    from ..reuse.compare import Difference
    from ..reuse.entries import Entries, Entry
    from ..runfiles import Submission
    from .environment import Environment


def find_kept(env: Environment, prepared: Prepared) -> dict[str, Entry | None]:
    """Each node whose result is kept for later runs -> what is there under its content key."""
    from ..plan import Segment
    from ..reuse.components import keys_of
    from ..reuse.entries import Entries

    keys, entries = keys_of(prepared.plan, prepared.submission), Entries(env.store, env.key)
    found: dict[str, Entry | None] = {}
    for node in prepared.plan.graph.nodes:
        if isinstance(node, Segment) and node.policy.cache is not None and node.id in keys:
            found[node.id] = _find(entries, keys[node.id], node.policy.cache.ttl)
    return found


def _find(entries: Entries, key: str, ttl: float) -> Entry | None:
    """As a run that starts now would find it."""
    from treadle.primitives.errors import CorruptError

    try:
        return entries.find(key, ttl)
    except CorruptError as error:
        complain(f"a cached result cannot be used: {error}")
        return None


def cache_notes(plan: Plan, kept: dict[str, Entry | None]) -> dict[str, list[str]]:
    """For each node a line that says whether it will run."""
    notes: dict[str, list[str]] = {}
    conditional: set[str] = set()
    for node in plan.graph.nodes:
        if node.when or conditional.intersection(node.data):
            conditional.add(node.id)
        if node.id in kept:
            notes[node.id] = [f"cache: {_fate(kept[node.id], node.id in conditional)}"]
        else:
            reasons = [f"not cached: {stage}: {why}" for stage, why in plan.not_kept.items() if stage in node.stages]
            notes[node.id] = reasons
    return notes


def _fate(entry: Entry | None, conditional: bool) -> str:
    if entry is None:
        return "runs, nothing is kept under its key"
    made = f"run {entry.run} made it {span(entry.age(time.time()))} ago"
    if conditional:
        return f"{made}; that is taken over if no condition above it is open when the run starts"
    return f"does not run, {made}"


def kept_json(kept: dict[str, Entry | None]) -> dict[str, Any]:
    """node -> run and time of the result that is taken over, or null."""
    return {node: {"run": entry.run, "made": entry.made} if entry else None for node, entry in kept.items()}


def beside(env: Environment, plan: Plan, submission: Submission, run: str) -> list[Difference]:
    """Every node beside that of another run. Raises CommandFailed for a run that never got a plan."""
    from treadle.primitives.errors import MissingError

    from ..plan import Plan
    from ..reuse.compare import compare
    from ..runfiles import Submission

    files = env.files(run)
    try:
        return compare(plan, submission, files.load(Plan, "plan"), files.load(Submission, "spec"))
    except MissingError as error:
        text = f"there is nothing in the store to compare with of run {run}"
        raise CommandFailed(Exit.NOT_FOUND, text, "See: treadle list") from error


def changes(env: Environment, run: str, now: Prepared | None) -> dict[str, str]:
    """Node -> the first thing that differs from the run if it were submitted `now`, or as it was if that is None.

    Of the second only input files can differ. What cannot be planned any more is told of no node, but of the first.
    """
    from treadle.primitives.errors import UsageError

    from ..client.submission import planned
    from ..runfiles import Submission

    if now is None:
        known = env.files(run).load(Submission, "spec")
        try:
            now = planned(known, bytes(env.files(run).load_bytes("bundle")) if known.bundle else b"", env.plan_site())
        except UsageError as error:
            return {"": error.message}
    found = beside(env, now.plan, now.submission, run)
    return {one.node: one.reason for one in found if one.state == "differs"}


def find_run(env: Environment, text: str) -> str:
    """The run that a person means; asks Temporal only for what is not a whole id."""
    if env.store.head(f"{env.files(text).prefix}/spec") is not None:
        return text
    return env.with_runs(lambda runs: runs.find(text))


def difference_lines(run: str, differences: Sequence[Difference]) -> list[str]:
    """A line for each node."""
    return [f"{_label(one)}: {one.reason or f'the same as in {run}'}" for one in differences]


def _label(one: Difference) -> str:
    """`tokenize, group`; with the role where a stage needs several segments: `sorted (cuts)`."""
    owner, _, role = one.node.partition(".")
    names = ", ".join(one.stages) or owner
    return f"{names} ({role})" if role else names
