"""The inputs of a node's data: code, parameters, data. Pure.

A node is described by its **components**, label -> value, in the order in which differences are reported. Its **content
key** is the digest of its components. For each node that it reads, one component is that node's content key. So a key
covers everything before the node, and all keys are known once the plan exists.

The executor, retries and the place of blocks are left out, since they do not change results.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from treadle.dsl.expressions import ExpressionError, read_paths
from treadle.dsl.templates import render, template_paths
from treadle.executors.program import Arg, Call, Op, Reduce, Tail, Value

from ..plan.plan import (
    CallsFeed,
    Child,
    DataRef,
    EventsFeed,
    Feed,
    FilesFeed,
    Graph,
    ItemsFeed,
    Kept,
    LoopData,
    LoopNode,
    Node,
    NodeData,
    Plan,
    RangeFeed,
    Segment,
    StateData,
)
from ..run_store.run_files import Submission

SEMANTICS = 1
"""The version of treadle's own part in a result. Increase it for a change in the meaning of a document
(docs/semantics.md), in the hash of keys, or in the encoding of blocks. Older cached results are then not used any
more."""
_SHOWN = 60
"""Maximum of characters in a value that is kept unchanged. A longer value is replaced by its digest."""
Components = dict[str, str]


def components_of(plan: Plan, submission: Submission) -> dict[str, Components]:
    """Node id -> its components. The nodes of a loop's body are listed too. Barriers have no components."""
    return dict(_Walk(plan, submission).graph(plan.graph))


def key_of(components: Components) -> str:
    """SHA-256 of the components."""
    return hashlib.sha256(msgspec.json.encode(components, order="sorted")).hexdigest()


def rule_of(node: Node) -> Kept | None:
    """The cache settings of a top node. None: its result is not cached."""
    if isinstance(node, Segment):
        return node.policy.cache
    return node.cache if isinstance(node, LoopNode) else None


def keys_of(plan: Plan, submission: Submission) -> dict[str, str]:
    """The content keys of the nodes with cache settings."""
    kept = {node.id for node in plan.graph.nodes if rule_of(node) is not None}
    if not kept:
        return {}
    return {name: key_of(found) for name, found in components_of(plan, submission).items() if name in kept}


class _Walk:
    """Computes the components of a graph in topological order, and remembers the keys."""

    def __init__(self, plan: Plan, submission: Submission) -> None:
        self._run, self._outputs = submission.run, plan.graph.outputs
        self._kept = {stage for node in plan.graph.walk() if rule_of(node) is not None for stage in node.stages}
        self._inputs, self._functions = submission.inputs, submission.functions
        self._bundle, self._seed = submission.bundle, submission.spec.get("seed", 0)
        self._workflow, self._documents = submission.spec["name"], submission.spec["stages"]
        self._keys: dict[str, str] = {}
        self._stages: dict[str, list[str]] = {}
        """Stage -> its nodes so far."""
        self._conditions: dict[str, str] = {}
        """Node -> the values that decide whether it is skipped. Empty: it is never skipped."""

    def graph(self, graph: Graph) -> Iterator[tuple[str, Components]]:
        for node in graph.nodes:
            if isinstance(node, LoopNode):
                yield from self.graph(node.body)
            self._conditions[node.id] = self._condition(node)
            found = self._node(node)
            if found is not None:
                self._keys[node.id] = key_of(found)
                for stage in node.stages:
                    self._stages.setdefault(stage, []).append(node.id)
                yield node.id, found

    def _node(self, node: Node) -> Components | None:
        match node:
            case Segment():
                return dict(self._segment(node))
            case LoopNode():
                return dict(self._loop(node))
            case Child():
                return dict(self._child(node))
        return None

    # -- segments

    def _segment(self, segment: Segment) -> Iterator[tuple[str, str]]:
        calls = list(_calls(segment))
        for name, call in calls:
            yield from self._code(name, call.function)
        kept = segment.policy.cache
        yield "cache version", _short(kept.version if kept else "")
        for name, call in calls:
            for argument, value in call.args.items():
                yield f"parameter {argument} of {name}", self._argument(value)
        for part in (*segment.ops, segment.tail):
            yield from _settings(part)
        yield "seed", str(self._seed)
        yield from self._feed(segment.feed)
        yield from self._values(segment)
        yield "segment", _short([segment.id, segment.stages, segment.partitions, segment.policy.gang, segment.metrics])
        yield "semantics of treadle", str(SEMANTICS)

    def _code(self, name: str, reference: str) -> Iterator[tuple[str, str]]:
        known = self._functions.get(reference, {})
        code = known.get("code")
        shown = name if reference.startswith("captured:") else reference
        yield f"function of {name}", shown
        if code is None:  # a run of an older version has no more
            yield f"code of {shown}", self._bundle
            return
        for unit, digest in code["units"].items():
            yield f"code of {shown}: {unit}", digest
        for distribution, version in code["versions"].items():
            yield f"version of {distribution}", version
        if known.get("takes_context"):
            yield "name of the workflow", self._workflow

    def _argument(self, argument: Arg) -> str:
        if not isinstance(argument, Value):
            return _short(msgspec.to_builtins(argument))
        mentioned = template_paths(argument.value)
        if all(path[0] == "inputs" for path in mentioned):
            try:
                return _short(render(argument.value, {"inputs": self._inputs}))
            except ExpressionError:  # such as a null for a value that must not be null; the run reports it
                pass
        given = {path[1]: self._inputs.get(path[1]) for path in sorted(mentioned) if path[0] == "inputs"}
        return _short([argument.value, given] if given else argument.value)

    # -- input

    def _feed(self, feed: Feed) -> Iterator[tuple[str, str]]:
        match feed:
            case FilesFeed(splits):
                for split in splits:
                    yield f"input file {split.uri}", f"{split.size} bytes, version {split.version}"
                yield "partitions", _short([msgspec.to_builtins(split) for split in splits])
            case ItemsFeed(items, bounds):
                yield "input items", _short(items)
                yield "partitions", _short(bounds)
            case RangeFeed(count, partitions, cut):
                yield "input range", str(count)
                yield "partitions", _short([partitions, cut])
            case EventsFeed():
                yield "input events", _short(msgspec.to_builtins(feed))
            case CallsFeed():
                yield "calls", "those of its clients"
            case _:
                yield from self._data(feed.data)
                rest = {name: value for name, value in msgspec.structs.asdict(feed).items() if name != "data"}
                yield "reading", _short([type(feed).__name__, rest])

    def _data(self, ref: DataRef) -> Iterator[tuple[str, str]]:
        match ref:
            case NodeData(nodes, form, groups):
                for node in nodes:
                    yield f"data of {node}", self._keys[node]
                yield "form of the data", f"{form} {groups} {' '.join(nodes)}"
            case LoopData(loop, name):
                yield f"data of {loop}", f"{self._keys[loop]} {name}"
            case StateData(name):
                yield f"state {name}", "of the loop"

    def _values(self, segment: Segment) -> Iterator[tuple[str, str]]:
        """Values of other stages in arguments: broadcasts and metrics."""
        for path, shipped in segment.broadcasts.items():
            for label, value in self._data(shipped.data):
                yield f"{label} as {path}", value
        yield from self._read(segment.paths)

    def _read(self, paths: Iterable[str]) -> Iterator[tuple[str, str]]:
        """The values of other stages. The value of a skipped stage is null, so its condition counts; its data has no
        readers."""
        for stage, *value in (path.split(".")[1:] for path in paths if path.startswith("stages.")):
            path = ".".join(["stages", stage, *value])
            for node in self._stages.get(stage, ()):
                yield f"value {path} of {node}", self._keys[node]
                if value and self._conditions[node]:
                    yield f"condition of {node}", self._conditions[node]
            if value[:1] == ["output"]:
                yield f"place {path}", _short(self._outputs.get(stage))

    def _condition(self, node: Node) -> str:
        found: list[Any] = [self._conditions[need] for need in node.data if self._conditions[need]]
        if node.when:
            read = sorted(read_paths(node.when))
            found += [node.when, {path[1]: self._inputs.get(path[1]) for path in read if path[0] == "inputs"}]
            found += self._read(".".join(path) for path in read)
            if any(path[0] == "run" or (path[0] == "stages" and path[1] not in self._kept) for path in read):
                found.append(self._run)  # the result may differ in each run
        return _short(found) if found else ""

    # -- loops

    def _loop(self, loop: LoopNode) -> Iterator[tuple[str, str]]:
        for node in loop.body.nodes:
            if node.id in self._keys:
                yield f"stage {node.id}", self._keys[node.id]
        for name, ref in loop.state.items():
            for label, value in self._data(ref) if ref is not None else ():
                yield f"{label} as state {name}", value
        scalars = {name: self._argument(Value(value)) for name, value in loop.scalars.items()}
        steps = [loop.next, loop.next_scalars, loop.until, loop.max_iterations, loop.on_exhausted]
        yield "name of the loop", loop.id
        yield "initial state", _short(scalars)
        yield "steps of the loop", _short(msgspec.to_builtins(steps))
        yield "conditions in the loop", _short(_conditions(loop.body))
        yield "inputs of the steps", _short({name: self._inputs.get(name) for name in sorted(_mentioned(loop))})
        yield from self._read(loop.paths)

    # -- sub-workflows

    def _child(self, child: Child) -> Iterator[tuple[str, str]]:
        """The child's document, the functions in it, and the inputs of this run. The child has a plan of its own."""
        document = self._documents[child.id]
        for reference in sorted(_texts(document) & self._functions.keys()):
            yield from self._code(reference, reference)
        yield f"document of {child.workflow}", _short(document)
        yield "inputs", _short(self._inputs)


def _conditions(body: Graph) -> dict[str, str]:
    """Node -> its condition. Only within a loop do conditions change the result of a node."""
    return {node.id: node.when for node in body.walk() if node.when}


def _mentioned(loop: LoopNode) -> set[str]:
    """Inputs in the expressions of a loop. Inputs in the arguments of its segments are components of the segments."""
    texts = [*_conditions(loop.body).values(), *([loop.until] if loop.until else [])]
    read = template_paths(loop.next_scalars).union(*(read_paths(text) for text in texts))
    return {path[1] for path in read if path[0] == "inputs"}


def _texts(value: Any) -> set[str]:
    """Every text in a JSON value."""
    if isinstance(value, str):
        return {value}
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return {text for item in items for text in _texts(item)}


def _calls(segment: Segment) -> Iterator[tuple[str, Call]]:
    """Every user function that the segment calls, with a name for its role."""
    for op in segment.ops:
        if isinstance(op, Reduce):
            roles = {"uses": op.uses, "combine": Call(op.combine) if op.combine else None, "finish": op.finish}
        else:
            roles = {"uses": getattr(op, "call", None)}
        by = getattr(op, "by", None)
        roles["by"] = Call(by.function) if by is not None and by.function else None
        yield from ((f"{op.stage}.{role}", call) for role, call in roles.items() if call is not None)
    by = getattr(segment.tail, "by", None)
    combine = getattr(segment.tail, "combine", "")
    stage = getattr(segment.tail, "stage", "")
    if by is not None and by.function:
        yield f"{stage}.by", Call(by.function)
    if combine:
        yield f"{stage}.combine", Call(combine)


_ASIDE = frozenset({"call", "uses", "finish", "combine", "non_retryable", "type", "stage"})
"""Fields of an operation that are separate components, or do not change results."""


def _settings(part: Op | Tail) -> Iterator[tuple[str, str]]:
    """An operation's components besides its functions."""
    fields = msgspec.to_builtins(part)
    name = f"{fields.get('stage', '')} ({fields['type']})".strip()
    yield f"operation {name}", fields["type"]
    for field, value in fields.items():
        if field == "by":
            value = value | {"function": bool(value.get("function"))} if value else value
        if field not in _ASIDE:
            yield f"setting {field} of {name}", _short(value)


def _short(value: Any) -> str:
    """A JSON value as text, or the digest of a long one."""
    text = json.dumps(value, ensure_ascii=False, default=repr)
    return text if len(text) <= _SHOWN else "digest " + hashlib.sha256(text.encode()).hexdigest()[:32]
