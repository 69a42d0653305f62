"""Executes one working stage in its frame: its inputs, its arguments, its partitions one after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from treadle.primitives.encoding import codec
from treadle.primitives.errors import DataError, UsageError
from treadle.primitives.functions import describe
from treadle.primitives.shuffling.partitioning import DEFAULT_FAN_IN, DEFAULT_PARTITIONS

from ..expressions import Path
from ..graph.graph import InputTarget, Node, StageTarget, StateTarget
from ..graph.objects import used_objects
from ..graph.partition_kinds import grouped_by, is_single
from ..model import (
    BarrierStage,
    BroadcastStage,
    EventRange,
    Items,
    MapStage,
    Range,
    RangePartitioner,
    ReduceStage,
    Retry,
    ShuffleStage,
    Source,
)
from ..templates import render, whole
from ..units import parse_percentage
from ..validation.inputs import source_of
from .calls import (
    AttemptPolicy,
    ReferenceCall,
    ReferenceCheckpoint,
    ReferenceContext,
    ReferenceFailure,
    ReferenceMetrics,
    attempted,
    attempted_together,
)
from .data import ReferenceDataset, ReferencePartition, count, gather
from .maps import Mapped, Mapper, is_tolerated, recut
from .objects import ReferenceEffect
from .reduces import Grouping, Reducer
from .run import ReferenceRun
from .scopes import FinishedStage, Frame
from .shuffles import as_one, keys_by, sampled_boundaries, shuffle
from .sources import read_source, read_texts

T = TypeVar("T")


def dataset_of(run: ReferenceRun, reference: str, frame: Frame, *, tolerate: bool = False) -> ReferenceDataset:
    """Return the dataset of a bare reference; `tolerate` as in `read_source`.

    Raises UsageError when its stage was skipped.
    """
    match run.graph.resolve(reference, frame.loops):
        case StageTarget(node):
            done = run.stage(node.id, frame)
            if done is None:
                raise UsageError(f"{reference} was skipped")
            return done.dataset
        case InputTarget(name):
            return ReferenceDataset(read_source(source_input(run, name), run, tolerate=tolerate))
        case StateTarget(loop, name, True):
            return frame.at((*loop.loops, loop.id)).states[name]
        case StateTarget(loop, name):
            done = run.stage(loop.id, frame)
            assert done is not None, "consumers of a skipped loop are skipped"
            return done.states[name]


def source_input(run: ReferenceRun, name: str) -> Source | Items | Range | EventRange:
    """Return a workflow input of type dataset or list as a source."""
    return source_of(run.fixed_env["inputs"][name])


class Work:
    """A stage in one frame."""

    def __init__(self, run: ReferenceRun, node: Node, frame: Frame) -> None:
        self.run, self.node, self.frame = run, node, frame
        self.path = frame.prefix + node.id
        self.effects: list[ReferenceEffect] = []
        """Calls of shared objects by the attempts that succeeded, in the order of their partitions."""

    # -- inputs

    def dataset(self, given: str | Source | Items | Range, *, tolerate: bool = False) -> ReferenceDataset:
        try:
            if isinstance(given, str):
                found = dataset_of(self.run, given, self.frame, tolerate=tolerate)
                return found if given.startswith("inputs.") else _without_files(found)
            return ReferenceDataset(read_source(given, self.run, tolerate=tolerate))
        except (UsageError, DataError) as error:
            raise ReferenceFailure(self.path, None, error) from error

    def number(self, given: int | str | None, default: int, least: int = 1) -> int:
        """Return the given number, or the default."""
        return default if given is None else self.once(lambda: self.run.number(given, least))

    def arguments(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return `with`, rendered: the value of a broadcast or a secret, or JSON."""
        return {name: self._argument(value) for name, value in given.items()}

    def _argument(self, value: Any) -> Any:
        expr = whole(value) if isinstance(value, str) else None
        match expr:
            case Path(("stages", name)):
                done = self.run.stage(name, self.frame)
                assert done is not None, "consumers of a skipped broadcast are skipped"
                return done.broadcast
            case Path(("secrets", name)):
                return self.run.secrets[name]
        try:
            return render(value, self.run.env(self.frame))
        except UsageError as error:
            raise ReferenceFailure(self.path, None, error) from error

    def function(self, reference: str | None) -> Callable[..., Any] | None:
        return None if reference is None else self.run.functions(reference)

    # -- attempts

    def policy(self, function: Callable[..., Any] | None) -> AttemptPolicy:
        """Return the stage's own `retry`, else that of `defaults`, else that of the function's decorator."""
        if not getattr(self.node.stage, "idempotent", True):
            return AttemptPolicy(attempts=1)
        settings = {} if function is None else describe(function).settings
        own = getattr(self.node.stage, "retry", None) or self.run.spec.defaults.retry or settings.get("retry")
        retry = own if isinstance(own, Retry) else Retry.model_validate(own or {})
        return AttemptPolicy(retry.maximum_attempts, tuple(retry.non_retryable_error_types))

    def attempted(
        self, index: int, policy: AttemptPolicy, metrics: ReferenceMetrics, body: Callable[[ReferenceCall], T]
    ) -> T:
        """Run `body` for partition `index`, as often as the policy allows; adds its metrics to `metrics`."""
        value, call = attempted(self._calls(index, policy, metrics), policy, body)
        self._finished(call, metrics)
        return value

    def _finished(self, call: ReferenceCall, metrics: ReferenceMetrics) -> None:
        metrics.add(call.metrics.values)
        self.effects += call.context.effects

    def _calls(self, index: int, policy: AttemptPolicy, metrics: ReferenceMetrics) -> Callable[[int], ReferenceCall]:
        """Return a function from an attempt to the call of partition `index`."""
        checkpoint = ReferenceCheckpoint()

        def make(attempt: int) -> ReferenceCall:
            job = self.run.fixed_env["run"]
            spec, final = self.run.spec, attempt == policy.attempts
            context = ReferenceContext(
                job["id"], spec.name, job["startTime"], spec.seed, self.path, index, attempt, checkpoint
            )  # fmt: skip
            context.objects = self.run.objects.seen(used_objects(self.node.stage), context.effects)
            return ReferenceCall(context, final, policy, ReferenceMetrics(metrics.declared))

        return make

    def _gang(self, size: int, mapper: Mapper, policy: AttemptPolicy, metrics: ReferenceMetrics) -> list[Mapped]:
        """Run all partitions concurrently; an attempt covers all of them."""
        partitions = [as_one(partition) for partition in self._mapped_input(mapper.stage)]
        if len(partitions) != size:
            error = UsageError(f"the input has {len(partitions)} partitions, and `gang: {size}` needs exactly {size}")
            raise ReferenceFailure(self.path, None, error)
        return attempted_together(
            [self._calls(index, policy, metrics) for index in range(size)],
            [partial(mapper.apply, partition) for partition in partitions],
            policy,
            partial(self._finished, metrics=metrics),
        )

    def once(self, body: Callable[[], T]) -> T:
        """Run `body` once; any error fails the stage."""
        try:
            return body()
        except ReferenceFailure:
            raise
        except Exception as error:
            raise ReferenceFailure(self.path, None, error) from error

    # -- stage types

    def map(self, stage: MapStage) -> FinishedStage:
        mapper = Mapper(stage, self.run.functions(stage.uses), self.arguments(stage.with_))
        policy, metrics = self.policy(mapper.function), ReferenceMetrics(stage.metrics)
        if stage.gang is not None:
            mapped = self._gang(stage.gang, mapper, policy, metrics)
            return FinishedStage(ReferenceDataset([one.partition for one in mapped]), metrics.final())
        mapped = [
            self.attempted(index, policy, metrics, partial(mapper.apply, as_one(partition)))
            for index, partition in enumerate(self._mapped_input(stage))
        ]
        if mapper.tolerant:
            failed = [item for one in mapped for item in one.failed]
            self.run.result.failed_items[self.path] = failed
            entered = sum(one.entered for one in mapped)
            if not is_tolerated(stage, entered, len(failed)):
                error = UsageError(
                    f"{len(failed)} of {entered} records failed, {stage.tolerated_failures} are tolerated"
                )
                raise ReferenceFailure(self.path, None, error)
        return FinishedStage(ReferenceDataset([one.partition for one in mapped]), metrics.final())

    def _mapped_input(self, stage: MapStage) -> list[ReferencePartition]:
        if stage.whole and isinstance(stage.input, Source):
            source = stage.input
            return self.once(lambda: read_texts(source, self.run))
        if stage.whole and isinstance(stage.input, str):
            found = source_input(self.run, stage.input.removeprefix("inputs."))
            assert isinstance(found, Source)
            return self.once(lambda: read_texts(found, self.run))
        partitions = self.dataset(stage.input, tolerate=stage.tolerated_failures is not None).partitions
        if stage.batch is None:
            return partitions
        most, size = self.number(stage.batch.max_items, 0), stage.batch.max_bytes or 0
        return self.once(lambda: recut(partitions, most, size))

    def shuffle(self, stage: ShuffleStage) -> FinishedStage:
        given = stage.input if isinstance(stage.input, list) else [stage.input]
        inputs = [self.dataset(one).partitions for one in given]
        keys_of = keys_by(stage.by, self.run.functions)
        total = sum(map(len, inputs))
        partitions = self.number(stage.partitions, min(total, DEFAULT_PARTITIONS))
        combine = self.function(stage.combine)

        def body() -> list[ReferencePartition]:
            boundaries = None
            if isinstance(stage.partitioner, RangePartitioner):
                boundaries = self._boundaries(stage.partitioner)
                if boundaries is None:
                    seed = self.run.spec.seed
                    boundaries = sampled_boundaries(inputs, keys_of, partitions, seed, self.path)
            return shuffle(stage, inputs, keys_of, partitions, boundaries, combine)

        return FinishedStage(ReferenceDataset(self.once(body)))

    def _boundaries(self, partitioner: RangePartitioner) -> Any:
        """Return the boundaries of a list or of a broadcast; None: sample them."""
        if not isinstance(partitioner.boundaries, str):
            return partitioner.boundaries
        done = self.run.stage(partitioner.boundaries, self.frame)
        assert done is not None, "consumers of a skipped broadcast are skipped"
        return done.broadcast

    def broadcast(self, stage: BroadcastStage) -> FinishedStage:
        partitions = [as_one(partition) for partition in self.dataset(stage.input).partitions]
        given = stage.input
        single = isinstance(given, str) and is_single(self.run.graph, given, self.node.loops)
        value = self.once(lambda: _value(partitions, single, stage.limit))
        return FinishedStage(ReferenceDataset([ReferencePartition("objects", [value])]), broadcast=value)

    def barrier(self, stage: BarrierStage) -> FinishedStage:
        if parse_percentage(stage.quorum) < 100:
            raise UsageError(f"{self.path}: a quorum of {stage.quorum} has no exact meaning", "Use a quorum of 100%.")
        return FinishedStage(self.dataset(stage.input))

    def reduce(self, stage: ReduceStage) -> FinishedStage:
        uses, combine, finish = map(self.function, (stage.uses, stage.combine, stage.finish))
        reducer = Reducer(stage, uses, combine, finish, self.arguments(stage.with_))
        policy, metrics = self.policy(uses or combine), ReferenceMetrics(stage.metrics)
        partitions = self.dataset(stage.input).partitions
        if stage.per == "all":
            result = [self._per_all(stage, reducer, [as_one(one) for one in partitions], policy, metrics)]
        else:
            body = self._per_partition(stage, reducer)
            result = [
                self.attempted(index, policy, metrics, partial(body, partition))
                for index, partition in enumerate(partitions)
            ]
        return FinishedStage(
            ReferenceDataset([ReferencePartition("objects", records) for records in result]), metrics.final()
        )

    def _per_partition(
        self, stage: ReduceStage, reducer: Reducer
    ) -> Callable[[ReferencePartition, ReferenceCall], list[Any]]:
        if stage.per == "partition":
            return lambda partition, call: reducer.per_partition(as_one(partition), call)
        found = grouped_by(self.run.graph, stage.input, self.node.loops)
        assert found is not None, "a `per: key` reduce reads a shuffle"
        _, by = found
        given = by.input if isinstance(by.input, list) else [by.input]
        names = tuple(one if isinstance(one, str) else str(index) for index, one in enumerate(given))
        keys_of = keys_by(by.by, self.run.functions)
        grouping = Grouping(keys_of, by.by == "key", names if len(names) > 1 else (), by.sort)
        return lambda partition, call: reducer.per_key(partition, grouping, call)

    def _per_all(
        self,
        stage: ReduceStage,
        reducer: Reducer,
        partitions: list[ReferencePartition],
        policy: AttemptPolicy,
        metrics: ReferenceMetrics,
    ) -> list[Any]:
        leaves = []
        if stage.combine is not None:
            silent = ReferenceMetrics({})
            leaves = [
                self.attempted(index, policy, silent, partial(reducer.leaf, partition))
                for index, partition in enumerate(partitions)
                if count(partition)
            ]
        fan_in = self.number(stage.fan_in, DEFAULT_FAN_IN, least=2)
        return self.attempted(0, policy, metrics, lambda call: reducer.per_all(partitions, leaves, fan_in, call))


def _without_files(dataset: ReferenceDataset) -> ReferenceDataset:
    """Hide the files behind a barrier or a state from the stage that reads it."""
    return ReferenceDataset([replace(partition, split=None) for partition in dataset.partitions])


def _value(partitions: list[ReferencePartition], single: bool, limit: int) -> Any:
    """Return the value of a broadcast of these partitions. Raises UsageError beyond `limit` encoded bytes."""
    value = gather(partitions).value
    if single:
        if len(value) != 1:
            raise DataError("the reduce before the broadcast produced nothing", "Give it an `initial`.")
        (value,) = value
    size = sum(map(len, codec.encode("objects", [value])))
    if size > limit:
        raise UsageError(
            f"the broadcast has {size:,} encoded bytes, more than its limit of {limit:,}",
            "Raise `limit` if every worker has that much memory to spare, or shuffle the data instead.",
        )
    return value
