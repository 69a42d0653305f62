"""`reduce`: a fold, or a function of all values, per key or over the whole partition."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from treadle.primitives.cogroup import JointValues
from treadle.primitives.encoding import codec
from treadle.primitives.encoding.references import Kind
from treadle.primitives.errors import InternalError
from treadle.primitives.result import stage_value
from treadle.primitives.shuffling.folds import NOTHING, left_fold
from treadle.primitives.shuffling.key_order import argsort

from ..program import Call, Reduce
from ..spill.folding import Folder, fold_groups
from ..spill.grouping import Group, Grouper, sorted_groups
from .attempt_state import Attempt, Metrics
from .cogroup import spilled_joint_groups
from .grouping import group, joint_groups, plain
from .keys import keys_of, seconds
from .record_flow import Flow, RecordIterator, batched, objects, records, whole, within

Binary = Callable[[Any, Any], Any]
Columns = Iterator[tuple[Sequence[Any], Sequence[Any]]]


def reduce(op: Reduce, flow: Flow, attempt: Attempt) -> Flow:
    take = attempt.taker(op.stage, op.metrics)
    if op.per == "key":
        return _per_key(op, flow, take, attempt)
    made = _per_partition(op, flow, take, attempt)
    if op.value:
        records = whole(made)
        attempt.values[op.stage] = stage_value(op.stage, records[0]) if records else None
        return objects(records)
    return made


class _Finish:
    """Completes an accumulator at the root: combines it with `initial` on the left, applies `finish`, collects
    metrics."""

    def __init__(self, op: Reduce, take: Metrics, attempt: Attempt) -> None:
        self._op, self._take, self._attempt = op, take, attempt
        self._combine = attempt.function(op.combine)
        self._finish = attempt.bind(op.stage, op.finish) if op.finish else None

    def __call__(self, value: Any) -> Any:
        """Raises the exceptions of the functions."""
        if self._op.initial is not None:
            initial = self._attempt.argument(self._op.initial)
            value = initial if value is NOTHING else self._combine(initial, value)
        return self._take(self._finish(value) if self._finish else value)


# -- the whole partition ---------------------------------------------------------------------------------------------


def _per_partition(op: Reduce, flow: Flow, take: Metrics, attempt: Attempt) -> Flow:
    try:
        if op.uses:
            return objects([take(attempt.bind(op.stage, op.uses)(_values(op, flow)))])
        finish = _Finish(op, take, attempt)
        folded = fold_tree(records(flow), attempt.function(op.combine), op.fan_in)
        return objects([] if folded is NOTHING and op.initial is None else [finish(folded)])
    except BaseException as error:
        raise attempt.fail(op.stage, None, error) from error


def _values(op: Reduce, flow: Flow) -> RecordIterator | dict[str, RecordIterator]:
    return (
        JointValues(zip(op.names, map(RecordIterator, flow.inputs), strict=True)) if op.names else RecordIterator(flow)
    )


def fold_tree(values: Iterable[Any], combine: Binary, fan_in: int) -> Any:
    """A left fold, or with `fan_in` repeated folds of groups of consecutive values, until one value is left.

    Holds one accumulator for each level. Returns NOTHING for an empty input.
    """
    if fan_in < 2:
        return left_fold(combine, values)
    levels: list[list[Any]] = []
    for value in values:
        _push(levels, 0, value, combine, fan_in)
    return _close(levels, combine, fan_in)


def _push(levels: list[list[Any]], level: int, value: Any, combine: Binary, fan_in: int) -> None:
    """Fold `value` into the current group at `level`; a full group moves up. A group is [accumulator, count]."""
    if level == len(levels):
        levels.append([value, 1])
        return
    group = levels[level]
    if group[1] == fan_in:
        _push(levels, level + 1, group[0], combine, fan_in)
        group[:] = [value, 1]
    else:
        group[:] = [combine(group[0], value), group[1] + 1]


def _close(levels: list[list[Any]], combine: Binary, fan_in: int) -> Any:
    if not levels:
        return NOTHING
    level = 0
    while level < len(levels) - 1:
        _push(levels, level + 1, levels[level][0], combine, fan_in)
        level += 1
    return levels[-1][0]


# -- per key -------------------------------------------------------------------------------------------------------


def _per_key(op: Reduce, flow: Flow, take: Metrics, attempt: Attempt) -> Flow:
    if op.uses:
        return Flow("objects", attempt.lazily(batched(_used(op, op.uses, flow, take, attempt))))
    finished = _finished(op, _folds(op, flow, attempt), take, attempt)
    return Flow("objects", attempt.lazily(attempt.blamed(finished, op.stage)))


def _finished(
    op: Reduce, folds: Iterator[tuple[Any, Any]], take: Metrics, attempt: Attempt
) -> Iterator[list[tuple[Any, Any]]]:
    finish, cursor = _Finish(op, take, attempt), attempt.places.cursor(op.stage)
    for some in batched(folds):
        made = []
        for cursor.key, value in some:
            try:
                made.append((cursor.key, finish(value)))
            except BaseException as error:
                raise attempt.fail(op.stage, None, error, key=cursor.key) from error
        yield made


def _folds(op: Reduce, flow: Flow, attempt: Attempt) -> Iterator[tuple[Any, Any]]:
    """(key, fold) of each key. Sorted records that do not fit into memory are folded one key at a time, others all at
    once."""
    combine, parts = attempt.function(op.combine), iter(flow.parts)
    if op.sorted:
        value, rest = within(flow, attempt.room.size)
        if rest is not None:
            return fold_groups(sorted_groups(attempt.guarded(_columns(op, flow.kind, rest, attempt))), combine)
        parts = iter((value,))
    folder = Folder(combine, attempt.room)
    try:
        _fold(op, flow.kind, parts, folder, attempt)
    except BaseException as error:
        raise attempt.fail(op.stage, None, error) from error
    return folder.results()


def _fold(op: Reduce, kind: Kind, parts: Iterator[Any], folder: Folder, attempt: Attempt) -> None:
    pairs, start = op.by is not None and op.by.first and kind == "objects", 0
    for part in attempt.guarded(parts):
        done, count = folder.add_pairs(part) if pairs else 0, codec.rows(kind, part)
        if done < count:
            rest = part[done:] if done else part
            for keys, values in attempt.guarded(_columns(op, kind, iter((rest,)), attempt, start + done)):
                folder.add(keys, values)
        start += count


def _columns(op: Reduce, kind: Kind, parts: Iterator[Any], attempt: Attempt, start: int = 0) -> Columns:
    """(canonical keys, values) of each part; the first record has the position `start`."""
    for part in parts:
        count = codec.rows(kind, part)
        if count:
            yield _keys_and_values(op, kind, part, attempt, start)
        start += count


def _keys_and_values(
    op: Reduce, kind: Kind, value: Any, attempt: Attempt, start: int = 0
) -> tuple[Sequence[Any], Sequence[Any]]:
    """`by: key` reduces the second elements of pairs; any other key reduces the records themselves."""
    if op.by is None:
        raise InternalError(f"{op.stage}: a reduce per key has no `by`")
    keys = plain(keys_of(op.by, op.stage, kind, value, attempt, start))
    if op.by.first:
        return keys, seconds(kind, value)
    return keys, value if kind == "objects" else list(records(Flow(kind, (value,))))


def _used(op: Reduce, uses: Call, flow: Flow, take: Metrics, attempt: Attempt) -> Iterator[tuple[Any, Any]]:
    function, cursor = attempt.bind(op.stage, uses), attempt.places.cursor(op.stage)
    for key, values in _joint_groups(op, flow, attempt) if op.names else _groups(op, flow, attempt):
        cursor.key = key
        try:
            result = take(function(key, values))
        except BaseException as error:
            raise attempt.fail(op.stage, None, error, key=key) from error
        yield key, result


def _groups(op: Reduce, flow: Flow, attempt: Attempt) -> Iterator[tuple[Any, RecordIterator]]:
    value, parts = within(flow, attempt.room.size)
    if parts is None:
        for key, values in group(*_keys_and_values(op, flow.kind, value, attempt)):
            yield key, RecordIterator(objects(values))
        return
    columns = _columns(op, flow.kind, parts, attempt)
    for key, pieces in sorted_groups(columns) if op.sorted else _grouped(columns, attempt):
        yield key, RecordIterator(Flow("objects", attempt.guarded(pieces)))


def _grouped(columns: Columns, attempt: Attempt) -> Iterator[Group]:
    grouper = Grouper(attempt.room)
    for keys, values in columns:
        grouper.add(keys, values)
    return grouper.groups()


def _joint_groups(op: Reduce, flow: Flow, attempt: Attempt) -> Iterator[tuple[Any, dict[str, RecordIterator]]]:
    """The values of each key, separated by input."""
    size = attempt.room.size // max(1, len(flow.inputs))
    found = [(one.kind, *within(one, size)) for one in flow.inputs]
    if all(parts is None for _, _, parts in found):
        groups = joint_groups([_keys_and_values(op, kind, value, attempt) for kind, value, _ in found])
        if op.sorted:
            groups = [groups[index] for index in argsort([key for key, _ in groups])]
        together: Iterable[tuple[Any, list[Flow]]] = ((key, list(map(objects, apart))) for key, apart in groups)
    else:
        pieces = [(kind, iter((value,)) if parts is None else parts) for kind, value, parts in found]
        columns = [_columns(op, kind, parts, attempt) for kind, parts in pieces]
        together = spilled_joint_groups(columns, attempt.room, by_key=op.sorted)
    for key, flows in together:
        yield key, JointValues(zip(op.names, map(RecordIterator, flows), strict=True))
