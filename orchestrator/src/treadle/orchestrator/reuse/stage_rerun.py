"""Runs a stage of a finished run again, with all stages after it. The other stages keep their results.

Two invariants must hold: a partition is committed once, and a committed partition does not run again. They hold in the
same way as for a lost block. The ledger takes the commits back by a record, under an epoch that fences earlier writers.
The segment's next manifest records that it is not closed. The new results are committed once, in later generations.
Objects that readers of older generations need stay, except output files, since these have only one name.

A sub-workflow may get a new plan, since its parent makes its inputs. So its run takes nothing back: its next run has
its own id, ledgers and keys, and the earlier run stays as it ended.

Nodes are taken back from the last to the first. If this is interrupted, the nodes taken back run over the earlier data.
The result is one that the run could have had, and the command can be repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

from msgspec.structs import replace

from treadle.executors.program import Outcome
from treadle.primitives.errors import UsageError
from treadle.primitives.formats import release_output

from ..dispatcher.ledger.ledger import Committed, Ledger, Lost
from ..plan.plan import Child, Graph, LoopNode, Node, Plan, Segment
from ..run_store.child_runs import family
from ..run_store.run_files import OPEN, Manifest, RunFiles
from ..scheduler.instructions import Summary

Others = Callable[[str], RunFiles]
"""Returns the files of a run by its id."""


class Again(NamedTuple):
    """A node that runs again."""

    path: str
    """Its id after the stages that lead to it: `load/read`."""
    node: Node
    files: RunFiles
    """The files of its run."""


def following(graph: Graph, stage: str) -> list[Node]:
    """The nodes of a stage and all nodes after it, in order. Raises UsageError for an unknown stage."""
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
    """The nodes that run again when a run resumes from `stage`, in order. Raises UsageError for an unknown stage.

    For a path such as `load/read`, the child run `load` resumes from its stage `read`, and the nodes after `load`
    follow. A child after a stage runs again as a whole, since its inputs may have changed.
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
    """Take back the commits of a stage, and of all stages after it, in a finished run. Returns the nodes' paths.

    `resumption`: the resumption that will follow. Blocking. Raises UsageError before any change; StoreError.
    """
    found, child = list(again(files, plan, stage, others)), files
    for entered in stage.split("/")[:-1]:
        child = others(child.child(entered))
        child.store.delete([f"{child.prefix}/result"])  # the child's result does not count any more
    for one in reversed(found):
        _forget(one.files, one.node, resumption, others)
    return [one.path for one in found]


def _forget(files: RunFiles, node: Node, resumption: int, others: Others) -> None:
    for ledger in files.ledgers(node.id):
        _lose(files, ledger, resumption)
    if isinstance(node, Segment):
        _reopen(files, node)
    elif isinstance(node, LoopNode):
        if not files.has_ledger(node.id):  # a taken-over loop gets a ledger, so that it is not taken over again
            Ledger(files.store, files.segment(node.id), files.key, resumption)
        files.store.delete([f"{files.segment(node.id)}/result"])
    elif isinstance(node, Child):
        _release(others(files.child(node.id)), others)
        files.begin_anew(node.id)


def _release(files: RunFiles, others: Others) -> None:
    """Remove the output files of a child run and of its own children, since the next run may write there."""
    for _, run, plan in family(files, others):
        for place in (place for node in plan.graph.nodes if isinstance(node, Segment) for place in _places(node)):
            release_output(place, run.run)


def _lose(files: RunFiles, prefix: str, resumption: int) -> None:
    """Take back every commit of a ledger, if it exists. All segments of a loop share one ledger."""
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
    """Mark the segment as not closed. A cached result does not replace it, since it has a manifest already."""
    files.store.delete_prefix(f"{files.segment(segment.id)}/closed/")
    files.create_manifest(Manifest(segment.id, OPEN, (), Summary()), files.generation(segment.id) + 1)
    for place in _places(segment):
        release_output(place, files.run)


def _places(segment: Segment) -> list[str]:
    """The places of the segment's output files."""
    places = [segment.output.part.uri] if segment.output else []
    return places + [tolerance.failed_items for tolerance in segment.tolerated.values() if tolerance.failed_items]


def narrowed(graph: Graph, only: Collection[str], done: Collection[str]) -> tuple[Graph, list[str]]:
    """(the part of a graph needed to finish the nodes in `only`, the unfinished nodes left out)."""
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
