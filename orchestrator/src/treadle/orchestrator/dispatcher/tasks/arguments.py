"""A segment's program for its tasks: templates rendered, broadcasts looked up, counts filled in. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from treadle.dsl.expressions import ExpressionError, Path
from treadle.dsl.templates import render, whole
from treadle.executors.program import (
    Arg,
    Broadcast,
    Call,
    Cuts,
    MapPartition,
    MapRecords,
    ObjectState,
    Op,
    Program,
    Reduce,
    Scatter,
    SecretRef,
    Tail,
    UsedObject,
    Value,
    connection_secret,
)
from treadle.primitives.encoding.references import Slice
from treadle.primitives.errors import UsageError
from treadle.primitives.shuffling.partitioning import DEFAULT_PARTITIONS

from ...plan.plan import CallsFeed, EventsFeed, Segment
from ...planner.transport import INLINE_LIMIT

FindBroadcast = Callable[[str], Slice]
"""Template path -> the broadcast's block."""


def program_of(
    segment: Segment, name: str, env: Mapping[str, Any], find: FindBroadcast, partitions: int, sources: int
) -> Program:
    """The program of one run of a segment.

    `name`: the concrete segment id. `partitions`: its number of partitions. `sources`: the number of blocks that all of
    them read. Raises UsageError when a template cannot be rendered.
    """
    resolver = _Resolver(segment, env, find)
    ops = tuple(resolver.op(op, sources) for op in segment.ops)
    if isinstance(segment.feed, EventsFeed) and not segment.feed.split.copied:
        resolver.secrets.add(connection_secret(segment.feed.split.connection))
    return Program(
        segment=name,
        ops=ops,
        tail=resolver.tail(segment.tail, partitions),
        output=segment.output.part if segment.output else None,
        put="both" if segment.put == "host" and segment.policy.durability == "task" else segment.put,
        checksums=not isinstance(segment.feed, CallsFeed),  # a call's result is read where it is, as its arguments are
        inline_limit=0 if segment.policy.exchange == "storage" else INLINE_LIMIT,
        secrets=tuple(sorted(resolver.secrets)),
    )


class _Resolver:
    def __init__(self, segment: Segment, env: Mapping[str, Any], find: FindBroadcast) -> None:
        self._segment, self._env, self._find = segment, env, find
        self.secrets: set[str] = set()

    def op(self, op: Op, sources: int) -> Op:
        match op:
            case MapRecords() | MapPartition():
                return msgspec.structs.replace(op, call=self._call(op.call))
            case Reduce():
                uses = self._call(op.uses) if op.uses else None
                finish = self._call(op.finish) if op.finish else None
                return msgspec.structs.replace(op, uses=uses, finish=finish)
            case ObjectState():
                create = self._call(op.create) if op.create else None
                return msgspec.structs.replace(op, create=create, state=self._arg(op.state) if op.state else None)
            case Cuts(partitions=0):
                return msgspec.structs.replace(op, partitions=max(1, min(sources, DEFAULT_PARTITIONS)))
        return op

    def tail(self, tail: Tail, partitions: int) -> Tail:
        if not isinstance(tail, Scatter):
            return tail
        count = tail.partitions or max(1, min(partitions, DEFAULT_PARTITIONS))
        boundaries = self._arg(tail.boundaries) if tail.boundaries is not None else None
        return msgspec.structs.replace(tail, partitions=count, boundaries=boundaries)

    def _call(self, call: Call) -> Call:
        objects = {name: UsedObject(self._arg(one.state), one.merges) for name, one in call.objects.items()}
        return Call(call.function, {name: self._arg(arg) for name, arg in call.args.items()}, objects)

    def _arg(self, arg: Arg) -> Arg:
        if not isinstance(arg, Value):
            return arg
        path = _whole_path(arg.value)
        if path in self._segment.broadcasts:
            return Broadcast(self._find(path))
        if path.startswith("secrets."):
            name = path.removeprefix("secrets.")
            self.secrets.add(name)
            return SecretRef(name)
        try:
            return Value(render(arg.value, self._env))
        except ExpressionError as error:
            raise UsageError(f"{self._segment.stages[-1]}: `with` value {arg.value!r}: {error}") from error


def _whole_path(value: Any) -> str:
    """`a.b` for a value that consists of `${{ a.b }}`; otherwise empty."""
    expr = whole(value) if isinstance(value, str) else None
    return ".".join(expr.names) if isinstance(expr, Path) else ""
