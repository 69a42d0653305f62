"""A person has a stage of a run run again, with everything that comes after it; the rest is kept.

Two invariants seem to stand against it: a partition is committed once, and nothing that is committed runs again. They
hold as they do for a block that is lost. The ledger takes the commits back by a record, under an epoch that fences
whoever still writes to it, and the segment's next manifest says that it is not closed; what is then made is committed
once, in later generations. Nothing is removed that a reader of the older ones could miss but for output files, which
have one name only.

A sub-workflow may be planned anew, since what it reads is made by its parent. So nothing of its run is taken back: its
next run is another one, with an id, ledgers and keys of its own, and the one before stays as it ended.

Nodes are taken back last ones first. If that is cut off, what was taken back runs over the data of before: a result
that the run could have had, and the command can be given again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

from msgspec.structs import replace

from treadle.executors.program import Outcome
from treadle.primitives.errors import UsageError
from treadle.primitives.formats import release_output

from ..dispatcher.ledger.ledger import Committed, Ledger, Lost
from ..plan.plan import Child, Graph, Loop, Node, Plan, Segment
from ..run_store.child_runs import family
from ..run_store.run_files import OPEN, Manifest, RunFiles
from ..scheduler.instructions import Summary

Others = Callable[[str], RunFiles]
"""The files of a run by its id."""


class Again(NamedTuple):
    """A node that runs again."""

    path: str
    """Its id, after the stages that lead to it: `load/read`."""
    node: Node
    files: RunFiles
    """Of its run."""


def following(graph: Graph, stage: str) -> list[Node]:
    """The nodes of a stage and all that come after it, in order. Raises UsageError when there is none."""
    found = {node.id for node in graph.nodes_of(stage)}
    if not found:
        known = ", ".join(dict.fromkeys(name for node in graph.nodes for name in node.stages))
        raise UsageError(
            f"there is no stage {stage!r} to begin from", f"There are: {known}. Inside a loop, name the loop."
        )
    for node in graph.nodes:
        if found.intersection((*node.data, *node.after)):
            found.add(node.id)
    return [node for node in graph.nodes if node.id in found]


def again(files: RunFiles, plan: Plan, stage: str, others: Others, below: str = "") -> Iterator[Again]:
    """What runs again when a run goes on from `stage`, in order. Raises UsageError for a stage that there is not.

    Of a path, `load/read`, the child run `load` goes on from its stage `read`; then what comes after `load`. A child
    that comes after a stage runs again as a whole: what it reads may be something else now.
    """
    first, _, inside = stage.partition("/")
    for node in following(plan.graph, first):
        if inside and first in node.stages:
            child, inner = _inside(files, node, others)
            yield from again(child, inner, inside, others, f"{below}{first}/")
        else:
            yield Again(f"{below}{node.id}", node, files)


def _inside(files: RunFiles, node: Node, others: Others) -> tuple[RunFiles, Plan]:
    if not isinstance(node, Child):
        text = f"{node.id} is no workflow, and there is nothing inside of it to begin from"
        raise UsageError(text, f"Begin from {node.id} itself.")
    child = others(files.child(node.id))
    plan = child.find(Plan, "plan")
    if plan is None:
        raise UsageError(f"run {child.run} has not begun: there is nothing to take back", "Resume without --from.")
    return child, plan


def take_back(files: RunFiles, plan: Plan, stage: str, resumption: int, others: Others) -> list[str]:
    """Let a run that is over forget what it committed of a stage and of all that comes after it; the nodes' paths.

    `resumption` is the one that will go on. Blocking. Raises UsageError before anything is changed; StoreError.
    """
    found, child = list(again(files, plan, stage, others)), files
    for entered in stage.split("/")[:-1]:
        child = others(child.child(entered))
        child.store.delete([f"{child.prefix}/result"])  # what it came to does not count any more
    for one in reversed(found):
        _forget(one.files, one.node, resumption, others)
    return [one.path for one in found]


def _forget(files: RunFiles, node: Node, resumption: int, others: Others) -> None:
    for ledger in files.ledgers(node.id):
        _lose(files, ledger, resumption)
    if isinstance(node, Segment):
        _reopen(files, node)
    elif isinstance(node, Loop):
        if not files.has_ledger(node.id):  # it was taken over; that it has a ledger says that it shall not be again
            Ledger(files.store, files.segment(node.id), files.key, resumption)
        files.store.delete([f"{files.segment(node.id)}/result"])
    elif isinstance(node, Child):
        _release(others(files.child(node.id)), others)
        files.begin_anew(node.id)


def _release(files: RunFiles, others: Others) -> None:
    """Remove the files that a child run wrote, those of its own children too: the next one may write there."""
    for _, run, plan in family(files, others):
        for place in (place for node in plan.graph.nodes if isinstance(node, Segment) for place in _places(node)):
            release_output(place, run.run)


def _lose(files: RunFiles, prefix: str, resumption: int) -> None:
    """Take back every commit of a ledger, if there is one: those of all segments of a loop stand in one."""
    if not any(files.store.list(f"{prefix}/ledger/")):
        return
    ledger = Ledger(files.store, prefix, files.key, resumption)
    committed: dict[str, dict[int, Outcome]] = {}
    for record in ledger.records:
        if isinstance(record, Committed):
            committed.setdefault(record.segment, {})[record.outcome.partition] = record.outcome
    ledger.append(*(Lost(segment, tuple(sorted(found)), anew=True) for segment, found in committed.items()))
    ledger.flush()


def _reopen(files: RunFiles, segment: Segment) -> None:
    """Later manifests count from here on. What a cache keeps of it is not taken over: there is a manifest already."""
    files.store.delete_prefix(f"{files.segment(segment.id)}/closed/")
    files.create_manifest(Manifest(segment.id, OPEN, (), Summary()), files.generation(segment.id) + 1)
    for place in _places(segment):
        release_output(place, files.run)


def _places(segment: Segment) -> list[str]:
    """Where it writes files."""
    places = [segment.output.part.uri] if segment.output else []
    return places + [tolerance.failed_items for tolerance in segment.tolerated.values() if tolerance.failed_items]


def narrowed(graph: Graph, only: Collection[str], done: Collection[str]) -> tuple[Graph, list[str]]:
    """The part of a graph that is needed to finish some of its nodes, and the nodes that are then left to be done."""
    if not only:
        return graph, []
    wanted = set(only)
    for node in reversed(graph.nodes):
        if node.id in wanted:
            wanted.update(node.data, node.after)
    left = [node.id for node in graph.nodes if node.id not in wanted and node.id not in done]
    return (
        (replace(graph, nodes=tuple(node for node in graph.nodes if node.id in wanted)), left) if left else (graph, [])
    )
