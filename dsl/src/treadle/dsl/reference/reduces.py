"""Executes `reduce`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from treadle.primitives.cogroup import JointValues
from treadle.primitives.record_location import RecordPlace
from treadle.primitives.shuffling.folds import NOTHING, left_fold
from treadle.primitives.shuffling.key_order import order
from treadle.primitives.shuffling.keys import Key, identity

from ..model import ReduceStage
from .calls import Function, ReferenceCall
from .data import ReferencePartition, ReferenceValues, isolated, isolated_value, records
from .shuffles import KeysOf, as_one


@dataclass
class Reducer:
    """A reduce stage with its functions and arguments."""

    stage: ReduceStage
    uses: Function | None
    combine: Function | None
    finish: Function | None
    arguments: dict[str, Any]

    def per_partition(self, partition: ReferencePartition, call: ReferenceCall) -> list[Any]:
        """Return one record, or none for a fold without values."""
        partition = isolated(partition)
        if self.uses is not None:
            return [call.metrics.take(call.bind(self.uses, self.arguments)(ReferenceValues([partition])))]
        return self._root(self._folded(records(partition)), call, self._finish(call))

    def per_all(
        self, partitions: Sequence[ReferencePartition], leaves: Sequence[Any], fan_in: int, call: ReferenceCall
    ) -> list[Any]:
        """Return one record, or none for a fold without values; `leaves` are the folds of the non-empty partitions."""
        if self.uses is not None:
            values = ReferenceValues(map(isolated, partitions))
            return [call.metrics.take(call.bind(self.uses, self.arguments)(values))]
        level = [isolated_value(leaf) for leaf in leaves]
        while len(level) > 1:
            level = [self._folded(level[start : start + fan_in]) for start in range(0, len(level), fan_in)]
        return self._root(level[0] if level else NOTHING, call, self._finish(call))

    def leaf(self, partition: ReferencePartition, _call: ReferenceCall) -> Any:
        """Return the left fold of one partition of `per: all`."""
        return self._folded(records(isolated(partition)))

    def per_key(self, partition: ReferencePartition, grouping: Grouping, call: ReferenceCall) -> list[tuple[Key, Any]]:
        """Return (key, result) for each key."""
        partition = isolated(partition)
        if self.uses is not None:
            function = call.bind(self.uses, self.arguments)
            groups = joint_groups(partition, grouping) if grouping.names else single_groups(partition, grouping)
            return [(at(call, key), call.metrics.take(function(key, values))) for key, values in groups]
        finish = self._finish(call)
        folded = group(as_one(partition), grouping).values()
        return [(at(call, key), self._root(self._folded(values), call, finish)[0]) for key, values in folded]

    def _folded(self, values: Iterable[Any]) -> Any:
        assert self.combine is not None
        return left_fold(self.combine, values)

    def _finish(self, call: ReferenceCall) -> Function:
        """Return `finish` with its arguments, copied once for the partition."""
        return call.bind(self.finish, self.arguments) if self.finish else lambda found: found

    def _root(self, value: Any, call: ReferenceCall, finish: Function) -> list[Any]:
        """Fold `initial` in from the left, then apply `finish`."""
        assert self.combine is not None
        if self.stage.has_initial:
            initial = isolated_value(self.stage.initial)
            value = initial if value is NOTHING else self.combine(initial, value)
        if value is NOTHING:
            return []
        return [call.metrics.take(finish(value))]


def at(call: ReferenceCall, key: Key) -> Key:
    """Return the key, and set it as the key of `context.record`."""
    call.context.find_record = lambda: RecordPlace(key=key)
    return key


@dataclass(frozen=True)
class Grouping:
    """How the shuffle before a `per: key` reduce grouped the keys."""

    keys_of: KeysOf
    by_first: bool
    """`by: key`: the values are `record[1]`."""
    names: tuple[str, ...] = ()
    """Names of the inputs, when there are several: `uses` receives them separately."""
    sort: bool = False


def group(partition: ReferencePartition, grouping: Grouping) -> dict[Any, tuple[Key, list[Any]]]:
    """Return {key identity: (first key, values)}, in the order of first occurrence."""
    groups: dict[Any, tuple[Key, list[Any]]] = {}
    for key, record in zip(grouping.keys_of(partition), records(partition), strict=True):
        _, values = groups.setdefault(identity(key), (key, []))
        values.append(record[1] if grouping.by_first else record)
    return groups


def single_groups(partition: ReferencePartition, grouping: Grouping) -> list[tuple[Key, ReferenceValues]]:
    return [(key, listed(values)) for key, values in group(partition, grouping).values()]


def joint_groups(partition: ReferencePartition, grouping: Grouping) -> list[tuple[Key, dict[str, ReferenceValues]]]:
    """Return (first key, {input: values}) for each key of any input."""
    apart = [group(one, grouping) for one in partition.inputs]
    first: dict[Any, Key] = {}
    for groups in apart:
        for name, (key, _) in groups.items():
            first.setdefault(name, key)
    names = sorted(first, key=lambda name: order(first[name])) if grouping.sort else list(first)
    return [(first[name], _apart(name, apart, grouping)) for name in names]


def _apart(name: Any, apart: list[dict[Any, tuple[Key, list[Any]]]], grouping: Grouping) -> dict[str, ReferenceValues]:
    found = [groups[name][1] if name in groups else [] for groups in apart]
    return JointValues(zip(grouping.names, map(listed, found), strict=True))


def listed(values: list[Any]) -> ReferenceValues:
    return ReferenceValues([ReferencePartition("objects", values)])
