"""The facts about a run in its store: every attempt, and the totals of each node of the plan. Needs no driver."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from treadle.orchestrator.dispatcher.ledger.attempt_records import AttemptRecord
from treadle.orchestrator.dispatcher.ledger.ledger import Committed, Failed, Record, read
from treadle.orchestrator.dispatcher.tasks.summary import size_of
from treadle.orchestrator.plan.plan import Graph, LoopNode, Node, NodeKind, Plan, node_of
from treadle.orchestrator.run_store.run_files import RunFiles


class Attempted(Struct, frozen=True):
    """One attempt at one partition."""

    node: str
    segment: str
    """The node with its iteration path."""
    partition: int
    attempt: int
    slot: str
    started: float
    """Seconds since the epoch."""
    seconds: float
    failure: str = ""
    """A FailureClass; empty: it succeeded."""
    cpu_seconds: float = 0.0
    peak_memory: int = 0
    spilled: int = 0
    """Bytes written to temporary files for lack of memory."""
    bytes_in: int = 0
    bytes_out: int = 0
    rows: int = 0
    read: dict[str, int] = {}


class NodeFacts(Struct, frozen=True):
    """Totals of all attempts at a node, including every iteration of a loop."""

    node: str
    stages: tuple[str, ...]
    kind: NodeKind
    depth: int
    """Number of enclosing loops."""
    tasks: int = 0
    """Committed partitions."""
    retries: int = 0
    """Failed attempts that were retried."""
    failed: int = 0
    """Partitions that failed permanently."""
    rows: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    read: dict[str, int] = {}
    """Bytes by source (see `Outcome.read`)."""
    seconds: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """Median, 95th percentile and maximum of its committed attempts."""
    busy_seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_memory: int = 0
    spilled: int = 0
    run: str = ""
    """The child run that the node represents."""


class Facts(Struct, frozen=True):
    nodes: tuple[NodeFacts, ...]
    attempts: tuple[Attempted, ...]
    """In the order of their start; attempts with an unknown start are omitted."""
    edges: tuple[tuple[str, str], ...]
    outputs: dict[str, str]
    """stage -> URI."""


def gather(files: RunFiles, plan: Plan, logged: Sequence[AttemptRecord]) -> Facts:
    """Read every ledger of the run. Raises CorruptError for a ledger that this deployment did not write. Blocking."""
    records = [record for ledger in _ledgers(files) for record in read(files.store, ledger, files.key)]
    committed = [_succeeded(record) for record in records if isinstance(record, Committed)]
    failures = list(_failures(logged))
    attempts = [*committed, *failures]
    nodes = tuple(_with_run(files, node) for node in _nodes(plan.graph, committed, records, failures))
    known = sorted((one for one in attempts if one.started), key=lambda one: one.started)
    return Facts(nodes, tuple(known), tuple(plan.graph.edges()), plan.graph.outputs)


def _ledgers(files: RunFiles) -> Iterator[str]:
    prefix = f"{files.prefix}/segments/"
    seen = {info.name.rpartition("/ledger/")[0] for info in files.store.list(prefix) if "/ledger/" in info.name}
    yield from sorted(seen)


def _succeeded(record: Committed) -> Attempted:
    outcome = record.outcome
    return Attempted(
        node=node_of(record.segment),
        segment=record.segment,
        partition=outcome.partition,
        attempt=outcome.attempt,
        slot=outcome.slot,
        started=outcome.started,
        seconds=outcome.seconds,
        cpu_seconds=outcome.cpu_seconds,
        peak_memory=outcome.peak_memory,
        spilled=outcome.spilled,
        bytes_in=outcome.bytes_in,
        bytes_out=size_of(outcome),
        rows=outcome.rows,
        read=outcome.read,
    )


def _failures(logged: Iterable[AttemptRecord]) -> Iterator[Attempted]:
    for one in logged:
        if one.failure:
            yield Attempted(
                node_of(one.segment),
                one.segment,
                one.partition,
                one.attempt,
                one.slot,
                one.started,
                max(0.0, one.time - one.started),
                one.failure,
                peak_memory=one.peak_memory,
            )


def _nodes(
    graph: Graph, committed: Sequence[Attempted], records: Sequence[Record], lost: Sequence[Attempted] = ()
) -> Iterator[NodeFacts]:
    """`lost`: failed attempts whose reports exist."""
    mine, theirs = _by_node(committed), _by_node(lost)
    failures = Counter(node_of(record.segment) for record in records if isinstance(record, Failed))
    failed = Counter(node_of(segment) for segment, _ in _failed(records))
    for node, depth in _walk(graph):
        retries = failures[node.id] - failed[node.id]
        yield _facts(node, depth, mine[node.id], theirs[node.id], retries, failed[node.id])


def _by_node(attempts: Sequence[Attempted]) -> dict[str, list[Attempted]]:
    found: dict[str, list[Attempted]] = defaultdict(list)
    for one in attempts:
        found[one.node].append(one)
    return found


def _failed(records: Iterable[Record]) -> set[tuple[str, int]]:
    """Segment and partition of permanent failures that no later resumption committed."""
    failed: set[tuple[str, int]] = set()
    for record in records:
        if isinstance(record, Failed) and record.final:
            failed.add((record.segment, record.partition))
        elif isinstance(record, Committed):
            failed.discard((record.segment, record.outcome.partition))
    return failed


def _with_run(files: RunFiles, node: NodeFacts) -> NodeFacts:
    return replace(node, run=files.child(node.node)) if node.kind == "workflow" else node


def _walk(graph: Graph, depth: int = 0) -> Iterator[tuple[Node, int]]:
    for node in graph.nodes:
        yield node, depth
        if isinstance(node, LoopNode):
            yield from _walk(node.body, depth + 1)


def _facts(
    node: Node, depth: int, attempts: Sequence[Attempted], lost: Sequence[Attempted], retries: int, failed: int
) -> NodeFacts:
    """Failed attempts count for slot time and memory only."""
    read: Counter[str] = Counter()
    for one in attempts:
        read.update(one.read)
    return NodeFacts(
        node.id,
        node.stages,
        node.kind,
        depth,
        tasks=len(attempts),
        retries=retries,
        failed=failed,
        rows=sum(one.rows for one in attempts),
        bytes_in=sum(one.bytes_in for one in attempts),
        bytes_out=sum(one.bytes_out for one in attempts),
        read=dict(sorted(read.items())),
        seconds=percentiles([one.seconds for one in attempts]),
        busy_seconds=sum(one.seconds for one in [*attempts, *(one for one in lost if one.started)]),
        cpu_seconds=sum(one.cpu_seconds for one in attempts),
        peak_memory=max((one.peak_memory for one in [*attempts, *lost]), default=0),
        spilled=sum(one.spilled for one in attempts),
    )


def percentiles(values: Sequence[float]) -> tuple[float, float, float]:
    """Median, 95th percentile and maximum, each one of the values (nearest rank)."""
    if not values:
        return (0.0, 0.0, 0.0)
    ordered = sorted(values)
    last = len(ordered) - 1
    return ordered[round(last * 0.5)], ordered[round(last * 0.95)], ordered[last]
