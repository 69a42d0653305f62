"""For plan and resume: the results of a run that exist already, and its differences from another run."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from treadle.primitives.errors import CorruptError, MissingError, UsageError

from ..common import formatting
from ..common.exit_codes import complain
from ..common.options import run_to_read

if TYPE_CHECKING:
    from treadle.client.submission import Prepared
    from treadle.orchestrator.plan.plan import Graph, Plan
    from treadle.orchestrator.reuse.cache_entries import CacheEntry, Entries
    from treadle.orchestrator.reuse.key_difference import Difference
    from treadle.orchestrator.run_store.run_files import Submission

    from ..common.environment import Environment


def find_kept(env: Environment, prepared: Prepared) -> dict[str, CacheEntry | None]:
    """Each cacheable node -> the entry under its content key.

    Nodes of a child run (`load/read`) are included if the child's inputs are known.
    """
    from treadle.orchestrator.reuse.cache_entries import Entries

    return dict(_found(Entries(env.store, env.key), prepared.plan, prepared.submission))


def _found(
    entries: Entries, plan: Plan, submission: Submission, below: str = ""
) -> Iterator[tuple[str, CacheEntry | None]]:
    from msgspec.structs import replace

    from treadle.orchestrator.plan.plan import Child
    from treadle.orchestrator.reuse.content_key import keys_of, rule_of
    from treadle.orchestrator.run_store.child_runs import child_submission
    from treadle.primitives.run_paths import child_run

    keys = keys_of(plan, submission)
    for node in plan.graph.nodes:
        rule = rule_of(node)
        if rule is not None and node.id in keys:
            yield f"{below}{node.id}", _find(entries, keys[node.id], rule.ttl)
        if isinstance(node, Child) and node.graph is not None:
            child = child_submission(submission, plan.started, child_run(submission.run, node.id), {})
            yield from _found(entries, replace(plan, graph=node.graph), child, f"{below}{node.id}/")


def _find(entries: Entries, key: str, ttl: float) -> CacheEntry | None:
    """Find an entry as a run that starts now would."""
    try:
        return entries.find(key, ttl)
    except CorruptError as error:
        complain(f"a cached result cannot be used: {error}")
        return None


def cache_notes(plan: Plan, kept: dict[str, CacheEntry | None]) -> dict[str, list[str]]:
    """A line for each node that states whether it will run."""
    return dict(_notes(plan, plan.graph, kept, ""))


def _notes(plan: Plan, graph: Graph, kept: dict[str, CacheEntry | None], below: str) -> Iterator[tuple[str, list[str]]]:
    from treadle.orchestrator.plan.plan import Child

    conditional: set[str] = set()
    for node in graph.nodes:
        if node.when or conditional.intersection(node.data):
            conditional.add(node.id)
        path, stages = f"{below}{node.id}", {f"{below}{stage}" for stage in node.stages}
        if path in kept:
            yield path, [f"cache: {_fate(kept[path], node.id in conditional)}"]
        else:
            yield path, [f"not cached: {stage}: {why}" for stage, why in plan.not_kept.items() if stage in stages]
        if isinstance(node, Child) and node.graph is not None:
            yield from _notes(plan, node.graph, kept, f"{path}/")


def _fate(entry: CacheEntry | None, conditional: bool) -> str:
    if entry is None:
        return "runs, nothing is kept under its key"
    made = f"run {entry.run} made it {formatting.span(entry.age(time.time()))} ago"
    if conditional:
        return f"{made}; that is taken over if no condition above it is open when the run starts"
    return f"does not run, {made}"


def kept_json(kept: dict[str, CacheEntry | None]) -> dict[str, Any]:
    """node -> run and time of the reused result, or null."""
    return {node: {"run": entry.run, "made": entry.made} if entry else None for node, entry in kept.items()}


def beside(env: Environment, plan: Plan, submission: Submission, run: str) -> list[Difference]:
    """Compare every node with another run. Raises MissingError for a run that never had a plan."""
    from treadle.orchestrator.plan.plan import Plan
    from treadle.orchestrator.reuse.key_difference import compare
    from treadle.orchestrator.run_store.run_files import Submission

    files = env.files(run)
    try:
        return compare(plan, submission, files.load(Plan, "plan"), files.load(Submission, "spec"))
    except MissingError as error:
        text = f"there is nothing in the store to compare with of run {run}"
        raise MissingError(text, "See: treadle list") from error


def changes(env: Environment, run: str, now: Prepared | None) -> dict[str, str]:
    """Node -> its first difference from the run, if the run were submitted `now`, or unchanged if `now` is None.

    In the second case only input files can differ. An error of planning is returned under an empty name.
    """
    from treadle.client.submission import planned
    from treadle.orchestrator.run_store.run_files import Submission

    if now is None:
        known = env.files(run).load(Submission, "spec")
        try:
            now = planned(known, env.files(run).code(known), env.plan_site())
        except UsageError as error:
            return {"": error.message}
    found = beside(env, now.plan, now.submission, run)
    return {one.node: one.reason for one in found if one.state == "differs"}


def find_run(env: Environment, text: str) -> str:
    """The run that the text identifies. Temporal is queried only if the text is not a full id."""
    if env.store.head(f"{env.files(text).prefix}/spec") is not None:
        return text
    return env.with_runs(lambda runs: run_to_read(runs, text))


def difference_lines(run: str, differences: Sequence[Difference]) -> list[str]:
    """A line for each node."""
    return [f"{formatting.node(one.node, one.stages)}: {one.reason or f'the same as in {run}'}" for one in differences]
