"""A person has a stage of a run run again, with everything that comes after it; the rest is kept.

Two invariants seem to stand against it: a partition is committed once, and nothing that is committed runs again. They
hold as they do for a block that is lost. The ledger takes the commits back by a record, under an epoch that fences
whoever still writes to it, and the segment's next manifest says that it is not closed; what is then made is committed
once, in later generations. Nothing is removed that a reader of the older ones could miss but for output files, which
have one name only.

Nodes are taken back last ones first. If that is cut off, what was taken back runs over the data of before: a result
that the run could have had, and the command can be given again.
"""

from __future__ import annotations

from collections.abc import Collection

from msgspec.structs import replace

from treadle.executors.program import Outcome
from treadle.primitives.errors import UsageError
from treadle.primitives.formats import release_output

from ..dispatcher.ledger import Committed, Ledger, Lost
from ..plan import Child, Graph, Loop, Node, Plan, Segment
from ..runfiles import OPEN, Manifest, RunFiles
from ..scheduler import Summary


def following(graph: Graph, stage: str) -> list[Node]:
    """The nodes of a stage and all that come after it, in order. Raises UsageError for what cannot run again alone."""
    found = {node.id for node in graph.nodes_of(stage)}
    if not found:
        known = ", ".join(dict.fromkeys(name for node in graph.nodes for name in node.stages))
        raise UsageError(
            f"there is no stage {stage!r} to begin from", f"There are: {known}. Inside a loop, name the loop."
        )
    for node in graph.nodes:
        if found.intersection((*node.data, *node.after)):
            found.add(node.id)
    children = [node.id for node in graph.nodes if node.id in found and isinstance(node, Child)]
    if children:
        text = f"{children[0]} is a workflow of its own, whose run would have to be taken back too"
        raise UsageError(text, "Start a new run: treadle rerun.")
    return [node for node in graph.nodes if node.id in found]


def take_back(files: RunFiles, plan: Plan, stage: str, resumption: int) -> list[str]:
    """Let a run that is over forget what it committed of a stage and of all that comes after it; the nodes' ids.

    `resumption` is the one that will go on. Blocking. Raises UsageError before anything is changed; StoreError.
    """
    nodes = following(plan.graph, stage)
    for node in reversed(nodes):
        for ledger in files.ledgers(node.id):
            _lose(files, ledger, resumption)
        if isinstance(node, Segment):
            _reopen(files, node)
        elif isinstance(node, Loop):
            files.store.delete([f"{files.segment(node.id)}/result"])
    return [node.id for node in nodes]


def _lose(files: RunFiles, prefix: str, resumption: int) -> None:
    """Take back every commit of a ledger, if there is one: those of all segments of a loop stand in one."""
    if not any(files.store.list(f"{prefix}/ledger/")):
        return
    ledger = Ledger(files.store, prefix, files.key, resumption)
    committed: dict[str, dict[int, Outcome]] = {}
    for record in ledger.records:
        if isinstance(record, Committed):
            committed.setdefault(record.segment, {})[record.outcome.partition] = record.outcome
    ledger.append(*(Lost(segment, tuple(sorted(found))) for segment, found in committed.items()))
    ledger.flush()


def _reopen(files: RunFiles, segment: Segment) -> None:
    """Later manifests count from here on. What a cache keeps of it is not taken over: there is a manifest already."""
    files.store.delete_prefix(f"{files.segment(segment.id)}/closed/")
    files.create_manifest(Manifest(segment.id, OPEN, (), Summary()), files.generation(segment.id) + 1)
    places = [segment.output.part.uri] if segment.output else []
    places += [tolerance.failed_items for tolerance in segment.tolerated.values() if tolerance.failed_items]
    for place in places:
        release_output(place, files.run)


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
