"""The shared state of the operations of one attempt: functions bound to arguments, metrics, failed records."""

from __future__ import annotations

import copy
import math
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Protocol, TypeVar

from treadle.primitives.blocks import Blocks
from treadle.primitives.encoding.read_only import sealed
from treadle.primitives.encoding.references import Kind, Slice
from treadle.primitives.encoding.tabular import type_name
from treadle.primitives.errors import TreadleError, UsageError
from treadle.primitives.formats import FileSplit
from treadle.primitives.formats.malformed_lines import Unparsable
from treadle.primitives.functions import matches_type
from treadle.primitives.result import Result, is_storable
from treadle.primitives.shuffling.folds import NOTHING

from ..context import Context
from ..failures import InputFailed, StageFailed, error_text, is_loss, json_of, message_of
from ..program import (
    Arg,
    Broadcast,
    Call,
    EventSplit,
    MapPartition,
    MapRecords,
    Partition,
    Program,
    SecretRef,
    StageCount,
    UsedObject,
    Value,
)
from ..redaction import Redactor
from ..spill.folding import key_of_failure
from ..spill.memory_budget import MemoryBudget
from .record_locations import RecordLocations

if TYPE_CHECKING:
    from treadle.primitives.objects.effects import Effects, StageObject

T = TypeVar("T")


class Function(NamedTuple):
    """A user function and the properties of its signature."""

    call: Callable[..., Any]
    takes_context: bool
    vectorized: bool
    """As a key function it takes a whole table or array."""


class FileSplits(Protocol):
    """Reads the file splits of a task's partitions."""

    def expect(self, split: FileSplit) -> None:
        """Announce a split that will be read after the ones announced before."""

    def read(self, split: FileSplit) -> tuple[Kind, Iterator[Any]]:
        """The kind of the records, and their pieces. The pieces raise TreadleError."""


class Services(NamedTuple):
    """The services an attempt needs from the runtime; the same for every partition of a task."""

    program: Program
    inputs_apart: bool
    """The first reduce needs the inputs of the shuffle separately."""
    files: FileSplits
    expect: Callable[[Iterable[Slice]], None]
    """Announces parts that will be read after the ones announced before."""
    seed: int
    function: Callable[[str], Function]
    load: Callable[[Slice, bool], Any]
    """(slice, whether other attempts on this host will read it) -> its decoded value, whose records this partition may
    change. Raises the errors of Blocks.get."""
    pieces: Callable[[Slice], Iterator[Any]]
    """A slice's decoded value in the pieces it was written in. Raises the errors of Blocks.pieces."""
    room: int
    """Bytes of records that may wait in memory; 0: no limit."""
    blocks: Blocks
    events: Callable[[EventSplit], Iterator[list[Any]]]
    """A split's events, or their data, in small lists. Raises TreadleError."""
    secrets: Mapping[str, str]
    redactor: Redactor
    context: Callable[[str, Partition], Context]


class Attempt:
    """One attempt at one partition."""

    def __init__(self, services: Services, partition: Partition) -> None:
        self.services = services
        self.partition = partition
        self.stage = ""
        """The stage whose operation was started last."""
        self.metrics: dict[str, Metrics] = {}
        self.values: dict[str, Any] = {}
        self.counts: dict[str, StageCount] = {}
        self.first_failed: dict[str, str] = {}
        self.failed_items: list[dict[str, Any]] = []
        self.effects: dict[str, Effects] = {}
        """Stage -> its calls of shared objects so far."""
        self.error: StageFailed | InputFailed | None = None
        """The first failure. It counts even if a later user function swallowed it."""
        self.bytes_in = 0
        self.room = MemoryBudget(services.room, lambda error: self._first(InputFailed(error)))
        self.places = RecordLocations(services.program, partition, self._positions_set_aside)
        self._contexts: dict[str, Context] = {}
        self._lazy: list[Iterator[Any]] = []

    # -- user functions

    def bind(self, stage: str, call: Call) -> Callable[..., Any]:
        """The function, to be called with its positional arguments only."""
        function, takes_context, _ = self.services.function(call.function)
        if not (call.args or takes_context):
            return function
        keywords = {name: self.argument(arg) for name, arg in call.args.items()}
        if takes_context:
            keywords["context"] = context = self._context(stage)
            context.used_objects = self._objects(stage, call.objects) if call.objects else {}
        return partial(function, **keywords)

    def _objects(self, stage: str, used: Mapping[str, UsedObject]) -> dict[str, StageObject]:
        from treadle.primitives.objects.effects import Effects, StageObject, state_of

        effects = self.effects.setdefault(stage, Effects())

        def seen(name: str, one: UsedObject) -> StageObject:
            return StageObject(name, lambda: state_of(self.argument(one.state)), effects if one.merges else None)

        return {name: seen(name, one) for name, one in used.items()}

    def argument(self, arg: Arg) -> Any:
        """The value of an argument, for this partition alone."""
        match arg:
            case Value(value):
                return copy.deepcopy(value)
            case Broadcast(slice):
                self.bytes_in += slice.part.length
                value = self.read(slice, shared=True)
                (value,) = sealed(value) if slice.kind == "objects" else value
                return value
            case SecretRef(name):
                return self.services.secrets[name]

    def function(self, reference: str) -> Callable[..., Any]:
        """A user function without bound arguments."""
        return self.services.function(reference).call

    def _context(self, stage: str) -> Context:
        if stage not in self._contexts:
            context = self._contexts[stage] = self.services.context(self.path(stage), self.partition)
            context.find_record = partial(self.places.current, stage)
        return self._contexts[stage]

    def path(self, stage: str) -> str:
        """The stage name with its iteration path."""
        return stage_path(self.services.program.segment, stage)

    def close(self) -> None:
        """Remove the temporary folders of this attempt and its spill files."""
        self.room.close()
        for context in self._contexts.values():
            context.close()

    # -- inputs

    def read(self, slice: Slice, rest: Sequence[Slice] = (), *, shared: bool = False) -> Any:
        """The value of a slice. If it is lost, all lost slices of `rest` are reported too."""
        try:
            return self.services.load(slice, shared)
        except (TreadleError, MemoryError) as error:
            raise self._unreadable(error, (slice, *rest)) from error

    def pieces(self, slice: Slice, rest: Sequence[Slice] = ()) -> Iterator[Any]:
        """The value of a slice with a single reader, in the pieces it was written in. Losses are reported as by
        `read`."""
        pieces = self.services.pieces(slice)
        while True:
            try:
                piece = next(pieces)
            except StopIteration:
                return
            except (TreadleError, MemoryError) as error:
                raise self._unreadable(error, (slice, *rest)) from error
            yield piece

    def guarded(self, parts: Iterator[T], stage: str = "") -> Iterator[T]:
        """Yield `parts`; record errors in the data, so that they count even if a user function swallows them.

        `stage`: the stage to report; empty: the stage that started last.
        """
        try:
            yield from parts
        except TreadleError as error:
            self.stage = stage or self.stage
            raise self._first(InputFailed(error)) from error

    def _is_lost(self, slice: Slice) -> bool:
        try:
            self.services.load(slice, False)
        except TreadleError as error:
            return is_loss(error)
        return False

    def _unreadable(self, error: TreadleError | MemoryError, slices: Sequence[Slice]) -> BaseException:
        lost = [one.name for one in slices if self._is_lost(one)] if is_loss(error) else []
        return self._first(InputFailed(error, tuple(dict.fromkeys(lost))))

    # -- results

    def taker(self, stage: str, declared: Mapping[str, str]) -> Metrics:
        """The object that converts a function's result to its value, and collects its metrics."""
        return self.metrics.setdefault(stage, Metrics(declared))

    # -- failures

    def fail(
        self, stage: str, position: int | None, error: BaseException, names: tuple[str, ...] = (), key: Any = NOTHING
    ) -> BaseException:
        """The exception to raise after user code raised `error` for the record at `position` or for `key`: the first
        failure."""
        if self.error is not None:
            return self.error
        if isinstance(error, InputFailed):  # of `context.gang`
            return self._first(error)
        key = key_of_failure(error) if key is NOTHING else key
        place = "" if isinstance(error, MemoryError) else self.places.text(stage, position, key)
        return self._first(StageFailed(stage, position, error, not matches_type(error, names), place))

    def blamed(self, parts: Iterator[T], stage: str, names: tuple[str, ...] = ()) -> Iterator[T]:
        """Yield `parts`; convert any exception from user code that produces them with `fail`."""
        try:
            yield from parts
        except GeneratorExit:
            raise
        except BaseException as error:
            raise self.fail(stage, None, error, names) from error

    def _first(self, error: StageFailed | InputFailed) -> StageFailed | InputFailed:
        if self.error is None:
            self.error = error
        return self.error

    def set_aside(self, op: MapRecords | MapPartition, position: int | None, record: Any, error: BaseException) -> None:
        """Record a failed record of a tolerant stage, or raise the error that fails the attempt."""
        tolerable = self.partition.final or matches_type(error, op.non_retryable)
        if self.error is not None or isinstance(error, MemoryError | InputFailed) or not tolerable:
            raise self.fail(op.stage, position, error, op.non_retryable) from error
        place, redactor = self.places.of(op.stage, position), self.services.redactor
        if op.stage not in self.first_failed:
            text = error_text(type_name(error), message_of(error, redactor).partition("\n")[0], place.text)
            self.first_failed[op.stage] = redactor.text(text)
        self.failed_items.append(
            {
                "stage": self.path(op.stage),
                "partition": self.partition.index,
                "position": position,
                "uri": place.uri,
                "line": place.line,
                "row": place.row,
                "fromByte": place.from_byte,
                "error": redactor.text(type_name(error)),
                "message": message_of(error, redactor),
                **redactor.record(json_of(record.text if isinstance(record, Unparsable) else record)),
            }
        )

    def _positions_set_aside(self, stage: str) -> list[int]:
        path = self.path(stage)
        return [item["position"] for item in self.failed_items if item["stage"] == path]

    # -- lazy chains

    def lazily(self, parts: Iterator[Any]) -> Iterator[Any]:
        """Register `parts` to be consumed fully, so that a later function that stops early does not affect earlier
        stages."""
        self._lazy.append(parts)
        return parts

    def finish(self) -> None:
        """Consume the remaining lazy parts, then raise the first failure if there was one."""
        for parts in reversed(self._lazy):
            if self.error is None:
                deque(parts, maxlen=0)
        if self.error is not None:
            raise self.error


def stage_path(segment: str, stage: str) -> str:
    """The stage with the iterations of its enclosing loops: `lloyd[3].assign` in the segment `lloyd-3/assign`."""
    loops = segment.rpartition("/")[0]
    return "".join(f"{loop}[{iteration}]." for loop, iteration in re.findall(r"([^/]+)-(\d+)", loops)) + stage


_MERGE: dict[str, Callable[[Any, Any], Any]] = {"sum": lambda a, b: a + b, "min": min, "max": max}
_JSON_TYPES: dict[str, tuple[type, ...]] = {
    "integer": (int,),
    "number": (int, float),
    "string": (str,),
    "boolean": (bool,),
}


class Metrics:
    """The metrics of one stage in one partition. Calling it with a result returns the result's value."""

    def __init__(self, declared: Mapping[str, str]) -> None:
        self.declared = declared
        self.values: dict[str, Any] = {}

    def __call__(self, result: Any) -> Any:
        """The value of a result. Raises UsageError unless its metrics match the declared names and types."""
        if not self.declared and not isinstance(result, Result):
            return result
        metrics = result.metrics if isinstance(result, Result) else {}
        if metrics.keys() != self.declared.keys():
            self._refuse(metrics)
        scalars = [(name, kind, _scalar(name, kind, metrics[name])) for name, kind in self.declared.items()]
        for name, kind, value in scalars:
            self._add(name, kind, value)
        return result.value if isinstance(result, Result) else result

    def _add(self, name: str, kind: str, value: Any) -> None:
        if name in self.values and kind in _MERGE:
            value = _MERGE[kind](self.values[name], value)
        self.values[name] = _storable(name, value)

    def _refuse(self, metrics: Mapping[str, Any]) -> NoReturn:
        for name in self.declared:
            if name not in metrics:
                raise UsageError(
                    f"the function did not report the metric {name!r}, which its stage declares",
                    f"Return Result(value, metrics={{{name!r}: ...}}) from every call.",
                )
        name = next(name for name in metrics if name not in self.declared)
        raise UsageError(f"the metric {name!r} is not declared", f"Add it to `metrics` of the stage, as {name}: sum.")


def _scalar(name: str, kind: str, value: Any) -> Any:
    """A metric as a plain finite JSON scalar of its declared type."""
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        value = value.item()
    types = _JSON_TYPES.get(kind, (int, float))
    wrong_bool = isinstance(value, bool) and kind != "boolean"
    if wrong_bool or not isinstance(value, types):
        wanted = kind if kind in _JSON_TYPES else "number"
        raise UsageError(f"the metric {name!r} is of type {type(value).__name__}, declared as {wanted}", "Convert it.")
    if isinstance(value, float) and not math.isfinite(value):
        raise UsageError(f"the metric {name!r} is {value}", "Report finite numbers only; leave out what has none.")
    return value


def _storable(name: str, value: Any) -> Any:
    """The metric, if a ledger can hold it. Otherwise raises UsageError."""
    if not is_storable(value):
        raise UsageError(f"the metric {name!r} has more than 64 bits", "Report a float, or leave it out.")
    if isinstance(value, str) and any("\ud800" <= char <= "\udfff" for char in value):
        raise UsageError(f"the metric {name!r} is no Unicode text: {value!r}", "Replace what is no UTF-8.")
    return value
