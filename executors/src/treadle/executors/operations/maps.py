"""`map`: a user function applied to every record, or to a partition as a whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from operator import length_hint
from types import GeneratorType
from typing import Any

from treadle.primitives.encoding.read_only import read_only
from treadle.primitives.encoding.tabular import as_partition, is_frame_type, items_of
from treadle.primitives.errors import UsageError
from treadle.primitives.formats.malformed_lines import Unparsable
from treadle.primitives.result import Result

from ..program import MapPartition, MapRecords, StageCount
from .attempt_state import Attempt, Metrics
from .record_flow import Flow, batched, batches, next_size, objects, records, whole

Function = Callable[[Any], Any]


def map_records(op: MapRecords, flow: Flow, attempt: Attempt) -> Flow:
    """`per: record`."""
    function = attempt.bind(op.stage, op.call)
    take = attempt.taker(op.stage, op.metrics)
    run = _tolerant if op.tolerate else _flat if op.flat else _mapped
    return Flow("objects", attempt.lazily(run(op, function, take, flow, attempt)))


def _mapped(op: MapRecords, function: Function, take: Metrics, flow: Flow, attempt: Attempt) -> Iterator[list[Any]]:
    """One result for each record, in batches: the loop over a batch determines the cost per record."""
    position, cursor = 0, attempt.places.cursor(op.stage)
    is_last = attempt.services.program.ops[-1:] == (op,)
    for batch in batches(flow) if is_last else _pieces(batches(flow)):  # the last operation's results are all held
        rest = iter(batch)
        cursor.enter(position, len(batch), rest)
        try:
            results = [function(record) for record in rest]
            if op.metrics or not _SPECIAL.isdisjoint(set(map(type, results))):
                rest = iter(results)
                results = [take(_refuse_generator(result)) for result in rest]
        except BaseException as error:
            raise attempt.fail(op.stage, _failed_at(position, batch, rest), error, op.non_retryable) from error
        position += len(batch)
        yield results


_SPECIAL = {Result, GeneratorType}


def _refuse_generator(result: Any) -> Any:
    """Return the result of a non-flat function, unless it is a generator, which only makes sense if flat."""
    if isinstance(result.value if isinstance(result, Result) else result, GeneratorType):
        raise UsageError("the function returned a generator", "Write `flat: true`, or annotate it `-> Iterator`.")
    return result


def _failed_at(position: int, batch: list[Any], rest: Iterator[Any]) -> int:
    """Position of the last record taken."""
    return position + len(batch) - length_hint(rest) - 1


def _pieces(parts: Iterable[list[Any]]) -> Iterator[list[Any]]:
    """Cut the lists, so that the results of one piece stay small in comparison with the whole."""
    size = 1
    for part in parts:
        start = 0
        while start < len(part):
            piece = part[start : start + size] if start or size < len(part) else part
            start += len(piece)
            yield piece
            size = next_size(piece, size)


def _flat(op: MapRecords, function: Function, take: Metrics, flow: Flow, attempt: Attempt) -> Iterator[list[Any]]:
    """The items of the results, in batches: the results of one record may exceed memory."""
    position, size, cursor = 0, 1, attempt.places.cursor(op.stage)
    for batch in batches(flow):
        rest = iter(batch)
        cursor.enter(position, len(batch), rest)
        items = chain.from_iterable(_taken(op, function, take, rest))
        while True:
            try:
                piece = list(islice(items, size))
            except BaseException as error:
                raise attempt.fail(op.stage, _failed_at(position, batch, rest), error, op.non_retryable) from error
            if not piece:
                break
            size = next_size(piece, size)
            yield piece
        position += len(batch)


def _taken(op: MapRecords, function: Function, take: Metrics, rest: Iterator[Any]) -> Iterator[Any]:
    """The items of each record's result. The check of the type is repeated only when it changes."""
    known, is_special = None, False
    for record in rest:
        result = function(record)
        if type(result) is not known:
            known = type(result)
            is_special = bool(op.metrics) or known is Result or is_frame_type(known)
        yield items_of(take(result)) if is_special else result


def _tolerant(op: MapRecords, function: Function, take: Metrics, flow: Flow, attempt: Attempt) -> Iterator[list[Any]]:
    """Like `_mapped` and `_flat`, but a failed record emits nothing, including items its generator has already
    yielded, and has no effect on objects."""
    entered, failed, cursor = 0, 0, attempt.places.cursor(op.stage)
    effects = attempt.effects.get(op.stage)
    for batch in _pieces(batches(flow)):
        results: list[Any] = []
        rest = iter(batch)
        cursor.enter(entered, len(batch), rest)
        for position, record in enumerate(rest, start=entered):
            mark = effects.mark() if effects else None
            try:
                result = function(_parsed(record))
                results += items_of(take(_listed(result))) if op.flat else (take(_refuse_generator(result)),)
            except BaseException as error:  # noqa: BLE001  set_aside raises errors that are not tolerated
                attempt.set_aside(op, position, record, error)
                failed += 1
                if effects and mark:
                    effects.back_to(mark)
        entered += len(batch)
        yield results
    attempt.counts[op.stage] = StageCount(entered, failed)


def _parsed(record: Any) -> Any:
    """A record of a tolerant stage. Raises DataError if the record could not be read."""
    if type(record) is Unparsable:
        raise record.error
    return record


# -- per: partition ------------------------------------------------------------------------------------------------


def map_partition(op: MapPartition, flow: Flow, attempt: Attempt) -> Flow:
    """`per: partition`."""
    function = attempt.bind(op.stage, op.call)
    take = attempt.taker(op.stage, op.metrics)
    failed = 0
    try:
        result = function(_argument(op, flow))
        output = _partition(take(_listed(result) if op.flat and op.tolerate else result), op, attempt)
    except BaseException as error:
        if not op.tolerate:
            raise attempt.fail(op.stage, None, error, op.non_retryable) from error
        attempt.set_aside(op, None, None, error)
        attempt.effects.pop(op.stage, None)
        output, failed = objects([]), 1
    if op.tolerate:
        attempt.counts[op.stage] = StageCount(1, failed)
    return output


def _argument(op: MapPartition, flow: Flow) -> Any:
    """The function's argument: the partition's text, an iterator of records, a table or an array."""
    if op.whole:
        ((text,),) = flow.parts
        return text
    if flow.kind != "objects":
        return whole(flow)
    return map(_parsed, records(flow)) if op.tolerate else records(flow)


def _partition(result: Any, op: MapPartition, attempt: Attempt) -> Flow:
    found = as_partition(result)
    if found is not None:
        kind, value = found
        return Flow(kind, (read_only(value) if kind == "array" else value,))
    if not op.flat:
        return objects([_refuse_generator(result)])
    if isinstance(result, list):
        return objects(result)
    return Flow("objects", attempt.lazily(attempt.blamed(batched(iter(result)), op.stage, op.non_retryable)))


def _listed(result: Any) -> Any:
    """Consume the items of a flat result, so that its errors occur now."""
    if isinstance(result, Result):
        return Result(_listed(result.value), result.metrics)
    found = as_partition(result)
    return list(result) if found is None else found[1]
