"""A run takes over what other runs have made, before anything in it starts; and keeps what it makes for later ones.

A result is taken over by closing the segment with the manifest that is kept under its content key. From then on the
segment is one that is closed: nothing else in treadle knows where its manifest came from, and nothing else decides what
runs. A block of it that is lost has the segment run in this run, as any other would.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary

from treadle.dsl import expressions
from treadle.primitives.errors import StoreError, TreadleError

from ..dispatcher.run import Run
from ..plan import Graph, Loop, Node, Segment
from ..runfiles import LoopResult
from ..scheduler import Scheduler, Summary
from .components import keys_of
from .entries import NO_CACHE, Entries, Entry, entry_of

_log = logging.getLogger(__name__)
_known: WeakKeyDictionary[Run, dict[str, str]] = WeakKeyDictionary()
"""The content keys of runs that this process drives."""


def take_over(run: Run) -> dict[str, Summary]:
    """Close every segment whose result is kept and which is sure to run; the top nodes that are closed then. Blocking.

    Sure is what no condition can keep from running: it has none, and neither has what it reads; or they are true, as
    far as results that are there already tell. Whatever else is kept is made again. Raises StoreError, CorruptError.
    """
    looks = bool(_keys(run)) and not run.submission.memo.get(NO_CACHE)
    entries, sure, done = Entries(run.site.store, run.site.key), set[str](), dict[str, Summary]()
    for node in run.plan.graph.nodes:
        if sure.issuperset(node.data) and _is_wanted(run.plan.graph, node, run.env, done):
            sure.add(node.id)
        summary = _closed(run, node)
        if summary is None and looks and node.id in sure and isinstance(node, Segment):
            summary = _taken_over(run, node, entries)
        if summary is not None:
            done[node.id] = summary
    return done


def keep(run: Run, segment: Segment) -> None:
    """Keep the result of a segment that was closed here for later runs, if it shall be. Blocking.

    A store that fails at this costs later runs time, and this one nothing.
    """
    rule = segment.policy.cache
    if rule is None:
        return
    try:
        entry = entry_of(_keys(run)[segment.id], run.folder, rule.ttl, run.manifest(segment.id), time.time())
        if entry is not None:
            Entries(run.site.store, run.site.key).keep(entry)
    except StoreError as error:
        _log.warning("the result of %s in run %s was not kept for later runs: %s", segment.id, run.id, error)


def _keys(run: Run) -> dict[str, str]:
    if run not in _known:
        _known[run] = keys_of(run.plan, run.submission)
    return _known[run]


def _closed(run: Run, node: Node) -> Summary | None:
    """Of a node that an earlier resumption finished."""
    if isinstance(node, Segment):
        closing = run.files.closing(node.id)
        return closing.summary if closing else None
    result = run.files.find(LoopResult, f"segments/{node.id}/result") if isinstance(node, Loop) else None
    return result.summary if result else None


def _is_wanted(graph: Graph, node: Node, env: Mapping[str, Any], done: Mapping[str, Summary]) -> bool:
    """Whether the condition of a node is true already; False too when what it reads is not done."""
    if not node.when:
        return True
    condition = expressions.parse(node.when)
    named = {path[1] for path in expressions.paths(condition) if path[0] == "stages"}
    if any(other.id not in done for stage in named for other in graph.nodes_of(stage)):
        return False
    try:
        return expressions.evaluate(condition, Scheduler(graph, env, done).env) is True
    except expressions.ExpressionError:  # the run will say so
        return False


def _taken_over(run: Run, segment: Segment, entries: Entries) -> Summary | None:
    rule, key = segment.policy.cache, _keys(run).get(segment.id)
    if rule is None or key is None or run.files.generation(segment.id):
        return None
    entry = _find(run, entries, key, rule.ttl)
    if entry is None or not entries.borrow(entry, run.folder):
        return None
    run.know(run.files.create_manifest(entry.manifest, 1))
    _log.info("run %s takes %s over from run %s", run.id, segment.id, entry.run)
    return entry.manifest.summary


def _find(run: Run, entries: Entries, key: str, ttl: float) -> Entry | None:
    try:
        return entries.find(key, ttl)
    except TreadleError as error:  # it is made again then
        _log.warning("run %s: the kept result %s cannot be used: %s", run.id, key, error)
        return None
