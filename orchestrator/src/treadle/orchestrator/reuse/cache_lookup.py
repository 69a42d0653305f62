"""A run takes over cached results before its first node starts, and caches its own results for later runs.

To take over a segment, the run closes it with the manifest cached under its content key. To take over a loop, the run
stores the loop's cached last state. From then on the node is closed like any other, and the rest of treadle does not
know its origin. If one of its blocks is lost, the node runs in this run.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from msgspec.structs import replace

from treadle.dsl import expressions
from treadle.executors.program import Outcome
from treadle.primitives.errors import CorruptError, MissingError, StoreError, TreadleError
from treadle.primitives.stores.input_files import is_local

from ..dispatcher.blocks.write_behind import AT_ONCE
from ..dispatcher.driver_context.run_context import RunContext
from ..plan.plan import Graph, LoopNode, Node, Segment
from ..run_store.run_files import NO_CACHE, LoopResult, Manifest
from ..scheduler.instructions import Summary
from ..scheduler.scheduler import Scheduler
from .cache_entries import CachedResult, CacheEntry, Entries, entry_of, result_of
from .content_key import keys_of, rule_of

_log = logging.getLogger(__name__)
_known: WeakKeyDictionary[RunContext, dict[str, str]] = WeakKeyDictionary()
"""The content keys of the runs that this process drives."""


def take_over(run: RunContext, *, is_new: bool = False) -> dict[str, Summary]:
    """Close every cached node that is certain to run. Returns the summaries of all closed top nodes. Blocking.

    `is_new`: this process has just made the plan, so no node is closed or has a ledger.

    A node is certain to run if neither it nor its inputs have a condition, or if existing results make the conditions
    true. Other nodes are computed. Raises StoreError, CorruptError.
    """
    looks = bool(_keys(run)) and not run.submission.memo.get(NO_CACHE)
    entries, sure, done = Entries(run.site.store, run.site.key), set[str](), dict[str, Summary]()
    for node, summary in _with_summaries(run, is_new=is_new):
        if sure.issuperset(node.data) and _is_wanted(run.plan.graph, node, run.env, done):
            sure.add(node.id)
        if summary is None and looks and node.id in sure and isinstance(node, Segment | LoopNode):
            summary = _taken_over(run, node, entries)
        if summary is not None:
            done[node.id] = summary
    run.opened(node.id for node in run.plan.graph.nodes if is_new and node.id not in done)
    return done


def keep(run: RunContext, node: Segment | LoopNode) -> None:
    """Cache the result of a node that was closed here, if its plan has cache settings. Blocking.

    If the store fails, or a block is lost, later runs take longer. This run is not affected.
    """
    rule = rule_of(node)
    if rule is None:
        return
    try:
        result = _result(run, node)
        if result is not None:
            entry = entry_of(_keys(run)[node.id], run.folder, rule.ttl, result, time.time())
            Entries(run.site.store, run.site.key).keep(entry, result)
    except (StoreError, CorruptError, MissingError) as error:
        _log.warning("the result of %s in run %s was not kept for later runs: %s", node.id, run.id, error)


def _result(run: RunContext, node: Segment | LoopNode) -> CachedResult | None:
    if isinstance(node, Segment):
        return result_of(run.folder, [run.manifest(node.id)])
    known = run.loop(node.id)
    return result_of(run.folder, [_copied(run, run.manifest(one)) for one in known.made_in(node.id)], known)


def _copied(run: RunContext, manifest: Manifest) -> Manifest:
    """The manifest, with its blocks copied to the store. A loop's blocks are copied once at its end, not in each
    iteration."""

    def outcome(one: Outcome) -> Outcome:
        if one.block is None or {"store", "inline"} & set(one.block.locations):
            return one
        return replace(one, block=run.blocks.copy_to_store(one.block))

    with ThreadPoolExecutor(AT_ONCE) as threads:
        return replace(manifest, outcomes=tuple(threads.map(outcome, manifest.outcomes)))


def _keys(run: RunContext) -> dict[str, str]:
    if run not in _known:
        _known[run] = keys_of(run.plan, run.submission)
    return _known[run]


def _with_summaries(run: RunContext, *, is_new: bool) -> Iterable[tuple[Node, Summary | None]]:
    """The top nodes, with the summaries of closed ones. A store over the network is asked about all at once."""
    nodes = run.plan.graph.nodes
    if is_new:
        return ((node, None) for node in nodes)
    if is_local(run.site.store.url):
        return ((node, _closed(run, node)) for node in nodes)
    with ThreadPoolExecutor(AT_ONCE) as threads:
        return list(zip(nodes, threads.map(partial(_closed, run), nodes), strict=True))


def _closed(run: RunContext, node: Node) -> Summary | None:
    """The summary of a node that an earlier resumption finished."""
    if isinstance(node, Segment):
        closing = run.files.closing(node.id)
        return closing.summary if closing else None
    result = run.files.find(LoopResult, f"segments/{node.id}/result") if isinstance(node, LoopNode) else None
    return result.summary if result else None


def _is_wanted(graph: Graph, node: Node, env: Mapping[str, Any], done: Mapping[str, Summary]) -> bool:
    """Returns whether the node's condition is already true. False also if a node that it reads is not done."""
    if not node.when:
        return True
    condition = expressions.parse(node.when)
    named = {path[1] for path in expressions.paths(condition) if path[0] == "stages"}
    if any(other.id not in done for stage in named for other in graph.nodes_of(stage)):
        return False
    try:
        return expressions.evaluate(condition, Scheduler(graph, env, done).env) is True
    except expressions.ExpressionError:  # the run will report the error
        return False


def _taken_over(run: RunContext, node: Segment | LoopNode, entries: Entries) -> Summary | None:
    rule, key = rule_of(node), _keys(run).get(node.id)
    if rule is None or key is None or _has_begun(run, node):
        return None
    found = _find(run, entries, key, rule.ttl)
    if found is None or not entries.borrow(found[0], run.folder):
        return None
    entry, result = found
    for manifest in result.manifests:
        run.know(run.files.create_manifest(manifest, 1))
    if result.loop is not None:
        run.files.create(f"segments/{node.id}/result", result.loop)
        run.know_loop(node.id, result.loop)
    _log.info("run %s takes %s over from run %s", run.id, node.id, entry.run)
    return result.summary


def _has_begun(run: RunContext, node: Segment | LoopNode) -> bool:
    """Returns whether the node was closed once and is to run again, or is a loop under way."""
    return bool(run.files.generation(node.id)) or (isinstance(node, LoopNode) and run.files.has_ledger(node.id))


def _find(run: RunContext, entries: Entries, key: str, ttl: float) -> tuple[CacheEntry, CachedResult] | None:
    try:
        return entries.take(key, ttl)
    except TreadleError as error:  # the node then runs
        _log.warning("run %s: the kept result %s cannot be used: %s", run.id, key, error)
        return None
