"""The calls of a `map_reduce`: each task combines its own results, and further calls combine the tasks' results.

Per all, the further calls are a tree of bounded fan-in. Per key, the result of a task has a part for each reducer, and
a reducer reads its part of each task. Only the last result comes to the client.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from itertools import islice, pairwise
from typing import Any, Literal, NamedTuple, Protocol

from treadle.executors.operations.call_reduction import (
    as_dict,
    fold_items,
    fold_pairs,
    fold_parts,
    fold_to_dict,
    fold_values,
)
from treadle.orchestrator.run_store.call_log import Gives
from treadle.primitives.errors import UsageError
from treadle.primitives.shuffling.folds import NOTHING
from treadle.primitives.shuffling.partitioning import DEFAULT_FAN_IN

from .futures import Future, Futures

_FEW = 4
"""The last call of a tree combines at most this many results, so that slots share the work also for few large ones."""
Arguments = tuple[tuple[Any, ...], dict[str, Any]]
Function = Callable[..., Any]


class CallStep(NamedTuple):
    """How the results of calls are used."""

    named: Function
    """The function whose name the calls have."""
    parts: int = 0
    """Members of each result, which are stored apart. 0: results are stored whole."""
    parts_of: str = ""
    """Key of the calls whose parts these calls read, each its own."""
    gives: Gives = "future"


class SendCalls(Protocol):
    """Sends calls with the settings of the user."""

    def __call__(self, function: Function, calls: Iterable[Arguments], *, step: CallStep) -> Futures: ...


class ItemTasks(NamedTuple):
    """Items, divided into tasks of `chunk`."""

    items: Collection[Any]
    chunk: int

    @property
    def number(self) -> int:
        return -(-len(self.items) // self.chunk)

    def calls(self) -> Iterator[Arguments]:
        """A call for each task, whose argument is its items."""
        items = iter(self.items)
        while some := list(islice(items, self.chunk)):
            yield (some,), {}


def reduce_all(send: SendCalls, function: Function, combine: Function, tasks: ItemTasks, initial: Any) -> Future:
    """Raises UsageError without items and `initial`."""
    first = () if initial is NOTHING else (initial,)
    if not (tasks.items or first):
        raise UsageError("map_reduce has neither items nor an initial value", "Pass `initial`, the result of no items.")
    alone = tasks.number == 1 and not first
    made = send(
        partial(fold_items, function, combine),
        tasks.calls(),
        step=CallStep(function, gives="future" if alone else "nothing"),
    )
    if alone:
        return made[0]
    fold = partial(fold_values, combine)
    while len(made) > _FEW:
        most = DEFAULT_FAN_IN if len(made) > DEFAULT_FAN_IN else _FEW
        made = send(fold, (((some,), {}) for some in _groups(made, most)), step=CallStep(combine, gives="nothing"))
    return send(fold, [((made, *first), {})], step=CallStep(combine))[0]


def _groups(made: Futures, most: int) -> Iterator[Futures]:
    """Consecutive results, at most `most` in each group, and as many in one group as in another, or one more."""
    number = -(-len(made) // most)
    bounds = [len(made) * one // number for one in range(number + 1)]
    for start, end in pairwise(bounds):
        yield Futures(made.link, made.key, end - start, 1, start)


def reduce_by_key(
    send: SendCalls, function: Function, combine: Function, tasks: ItemTasks, reducers: int | Literal["auto"]
) -> Future:
    """Raises UsageError for a number of reducers below 1."""
    parts = -(-tasks.number // DEFAULT_FAN_IN) if reducers == "auto" else reducers
    if not tasks.items:
        return send(as_dict, [(((),), {})], step=CallStep(combine))[0]
    if parts < 1:
        raise UsageError(
            f"reducers is {parts}", "Give the number of calls among which the keys are divided, at least 1."
        )
    pairs = partial(fold_pairs, function, combine, parts)
    made = send(pairs, tasks.calls(), step=CallStep(function, parts, gives="nothing"))
    if parts == 1:
        return send(partial(fold_to_dict, combine), [((made,), {})], step=CallStep(combine, parts_of=made.key))[0]
    calls: list[Arguments] = [((made,), {})] * parts
    reduced = send(partial(fold_parts, combine), calls, step=CallStep(combine, parts_of=made.key, gives="nothing"))
    return send(as_dict, [((reduced,), {})], step=CallStep(combine))[0]
