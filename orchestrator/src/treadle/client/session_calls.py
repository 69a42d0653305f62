"""The calls of a session: one, one for each item, and those whose results are combined."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sized
from functools import partial
from typing import Any, Literal

from treadle.primitives.errors import UsageError
from treadle.primitives.shuffling.folds import NOTHING

from .call_sending import CallOptions, CallSender
from .futures import Future, Futures
from .map_reduction import Arguments, CallStep, ItemTasks, reduce_all, reduce_by_key

_PARTITIONS = 1000
"""Partitions of a map with an automatic chunk."""


class SessionCalls:
    """Calls of a session with their own settings. Made by `Session.with_options`."""

    def __init__(self, sender: CallSender, slots: Callable[[str], int], options: CallOptions, reuse: bool) -> None:
        """`slots`: the slots of an executor."""
        self._send = partial(sender.send, options=options, reuse=reuse)
        self._put = partial(sender.put, options=options)
        self._slots = partial(slots, options[0])

    @property
    def slots(self) -> int:
        """The calls that can run at the same time: the slots of the executor of these calls."""
        return self._slots()

    def put(self, value: object) -> Future:
        """Send a value now, for any number of calls: the future is an argument that stands for it.

        Arrays of numbers and Arrow tables of 1 MiB and more need no `put`: a session sends each once. Raises UsageError
        for a value that cannot be pickled.
        """
        return self._put(value)

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **keywords: Any) -> Future:
        """Call the function once. Raises UsageError for a function or arguments that cannot be pickled.

        The arguments are copied now: a later change has no effect. A future among them, of this session and at any
        depth, stands for its result.
        """
        return self._send(function, [(arguments, keywords)], step=CallStep(function))[0]

    def map(
        self, function: Callable[..., Any], /, *iterables: Iterable[Any], chunk: int | Literal["auto"] = "auto"
    ) -> Futures:
        """Call the function with each item, or with an item of each iterable. One failed call does not end the others.

        `chunk`: calls that run one after another as one task; `auto`: one for up to 1,000 calls, else a thousandth.
        """
        known = [len(one) for one in iterables if isinstance(one, Sized)]
        items = zip(*iterables, strict=False)
        if chunk == "auto" and len(known) == len(iterables):  # the items need not be in memory together
            chunk = _automatic(min(known, default=0))
        return self._starmap(function, items, chunk, fixed=all(isinstance(one, list | tuple) for one in iterables))

    def starmap(
        self, function: Callable[..., Any], /, items: Iterable[Iterable[Any]], *, chunk: int | Literal["auto"] = "auto"
    ) -> Futures:
        """As `map`, with the members of each item as arguments."""
        return self._starmap(function, items, chunk, fixed=isinstance(items, list | tuple))

    def _starmap(
        self,
        function: Callable[..., Any],
        items: Iterable[Iterable[Any]],
        chunk: int | Literal["auto"],
        *,
        fixed: bool,
    ) -> Futures:
        if chunk == "auto":
            items = list(items)
            chunk = _automatic(len(items))
        calls: Iterable[Arguments] = ((tuple(item), {}) for item in items)
        step = CallStep(function, gives="futures")
        return self._send(function, calls, chunk=_checked(chunk), step=step, fixed=fixed)

    def map_reduce(
        self,
        function: Callable[[Any], Any],
        items: Iterable[Any],
        combine: Callable[[Any, Any], Any],
        *,
        per: Literal["all", "key"] = "all",
        initial: Any = NOTHING,
        chunk: int | Literal["auto"] = "auto",
        reducers: int | Literal["auto"] = "auto",
    ) -> Future:
        """Call the function with each item, and combine the results with `combine(a, b)`, an associative function.

        - `per`: `all` combines all results, in the order of the items. With `key` the function returns or yields pairs
          (key, value), or returns a dict; the result is a dict of the combined values of each key. Its order is that of
          the first occurrence of each key.
        - `initial`: with `all`, combined once, before the first result. Without items it is the result.
        - `chunk`: items whose results are combined in one task; `auto`: as of `map`.
        - `reducers`: with `key`, calls among which the keys are divided; `auto`: one for every 16 tasks.

        Raises UsageError without items and `initial`, and as `submit`.
        """
        items = items if isinstance(items, Collection) else list(items)
        tasks = ItemTasks(items, _checked(_automatic(len(items)) if chunk == "auto" else chunk))
        if per == "all" and reducers == "auto":
            return reduce_all(self._send, function, combine, tasks, initial)
        if per == "key" and initial is NOTHING:
            return reduce_by_key(self._send, function, combine, tasks, reducers)
        raise UsageError(
            f"map_reduce per {per!r} has other options", "`initial` is for per all, `reducers` for per key."
        )


def _automatic(calls: int) -> int:
    return max(1, -(-calls // _PARTITIONS))


def _checked(chunk: int) -> int:
    if chunk < 1:
        raise UsageError(f"chunk is {chunk}", "Give the number of calls in a task, at least 1.")
    return chunk
