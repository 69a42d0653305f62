"""Executes `map`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from types import GeneratorType
from typing import Any

from treadle.primitives.encoding.tabular import items_of, type_name
from treadle.primitives.errors import UsageError
from treadle.primitives.formats.malformed_lines import Unparsable
from treadle.primitives.formats.record_location import Locator
from treadle.primitives.functions import describe
from treadle.primitives.record_location import RecordPlace
from treadle.primitives.result import Result
from treadle.primitives.shuffling.partitioning import cut

from ..model import MapStage
from .calls import Function, ReferenceCall
from .data import ReferencePartition, as_partition, isolated, records


def recut(partitions: list[ReferencePartition], max_items: int, max_bytes: int) -> list[ReferencePartition]:
    """Apply `batch`: cut every partition into consecutive chunks within the limits (0: no limit)."""
    return [
        ReferencePartition(partition.kind, chunk)
        for partition in partitions
        for chunk in cut(partition.kind, partition.value, max_items, max_bytes)
    ]


@dataclass
class Mapped:
    """One partition of the result."""

    partition: ReferencePartition
    entered: int
    failed: list[dict[str, Any]] = field(default_factory=list)


class Mapper:
    """A map stage with its function and arguments."""

    def __init__(self, stage: MapStage, function: Function, arguments: dict[str, Any]) -> None:
        self.stage, self.function, self.arguments = stage, function, arguments
        self.flat = bool(describe(function).flat) if stage.flat is None else stage.flat
        self.tolerant = stage.tolerated_failures is not None

    def apply(self, partition: ReferencePartition, call: ReferenceCall) -> Mapped:
        """Map a partition. Raises the function's errors, unless the stage tolerates failures and this is the last
        attempt.
        """
        function = call.bind(self.function, self.arguments)
        partition = isolated(partition)
        each = self._per_record if self.stage.per == "record" else self._per_partition
        return each(partition, function, call)

    def _per_record(self, partition: ReferencePartition, function: Function, call: ReferenceCall) -> Mapped:
        result, place_of = Mapped(ReferencePartition("objects", []), entered=0), _places(partition)
        for position, record in enumerate(records(partition)):
            result.entered += 1
            done = len(call.context.effects)
            call.context.find_record = partial(place_of, position)
            try:
                result.partition.value.extend(self._results(function(_parsed(record)), call))
            except Exception as error:  # noqa: BLE001 - judged there, raised again unless tolerated
                result.failed.append(self._set_aside(error, call, record))
                del call.context.effects[done:]
        return result

    def _per_partition(self, partition: ReferencePartition, function: Function, call: ReferenceCall) -> Mapped:
        argument: Any = partition.value
        if partition.kind == "objects":
            argument = partition.value[0] if self.stage.whole else map(_parsed, partition.value)
        call.context.find_record = partial(_places(partition), None)
        try:
            result = function(argument)
            value = result.value if isinstance(result, Result) else result
            whole = as_partition(value)
            if whole is not None:
                call.metrics.take(result)
                return Mapped(whole, entered=1)
            return Mapped(ReferencePartition("objects", list(self._results(result, call))), entered=1)
        except Exception as error:  # noqa: BLE001 - judged there, raised again unless tolerated
            failed = self._set_aside(error, call, None)
            call.context.effects.clear()
            return Mapped(ReferencePartition("objects", []), 1, [failed])

    def _results(self, result: Any, call: ReferenceCall) -> Iterator[Any]:
        """Return the records of one call, all computed before the first is used."""
        value = result.value if isinstance(result, Result) else result
        if not self.flat and isinstance(value, GeneratorType):
            raise UsageError("the function returned a generator", "Write `flat: true`, or annotate it `-> Iterator`.")
        made = list(items_of(value)) if self.flat else [value]
        call.metrics.take(result)
        return iter(made)

    def _set_aside(self, error: Exception, call: ReferenceCall, record: Any) -> dict[str, Any]:
        """Return the failed item, or raise `error` when it is not (yet) tolerated."""
        if not self.tolerant or isinstance(error, MemoryError) or not call.gives_up(error):
            raise error
        place = call.context.record
        return {
            "stage": call.context.stage.rpartition(".")[2],
            "partition": call.context.partition,
            "position": place.position,
            "uri": place.uri,
            "line": place.line,
            "row": place.row,
            "fromByte": place.from_byte,
            "error": type_name(error),
            "message": str(error),
            "record": record.text if isinstance(record, Unparsable) else record,
        }


def _places(partition: ReferencePartition) -> Callable[[int | None], RecordPlace]:
    """Return a function from a position to the record's location."""
    return RecordPlace if partition.split is None else Locator(partition.split).place


def _parsed(record: Any) -> Any:
    """Return a record of a tolerant stage. Raises DataError for one that could not be parsed."""
    if isinstance(record, Unparsable):
        raise record.error
    return record


def is_tolerated(stage: MapStage, entered: int, failed: int) -> bool:
    """Return whether the stage tolerates `failed` of `entered` records."""
    if isinstance(stage.tolerated_failures, int):
        return failed <= stage.tolerated_failures
    share = Fraction(str(stage.tolerated_failures).rstrip("%"))
    return failed * 100 <= share * entered
