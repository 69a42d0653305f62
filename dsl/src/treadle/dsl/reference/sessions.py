"""The calls of a session. Each is evaluated at once, where it is made."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError
from typing import Any, Literal

_NOTHING = object()


class CallNotRun(Exception):
    """A call needs one that was cancelled, directly or not, so its function does not run."""


class ReferenceFuture:
    """The outcome of a call: its result, or its error. As an argument of a later call it stands for the result."""

    def __init__(self, result: Any = None, error: BaseException | None = None) -> None:
        self._result, self.error = result, error

    def result(self) -> Any:
        """Return a copy of the result. Raises the error."""
        if self.error is not None:
            raise self.error
        return copy.deepcopy(self._result)


class ReferenceSession:
    """Calls of a session, in the order in which one client makes them. Chunks, executors and retries have no effect."""

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **keywords: Any) -> ReferenceFuture:
        """Call the function with copies of its arguments. A call that needs a failed one fails with the same error."""
        given = arguments, keywords
        needed = [one.error for one in _calls_in(given) if one.error is not None]
        if any(isinstance(error, CancelledError | CallNotRun) for error in needed):
            return ReferenceFuture(error=CallNotRun("it needs a call that was cancelled"))
        if needed:
            return ReferenceFuture(error=needed[0])
        try:
            arguments, keywords = _with_results(given)
            return ReferenceFuture(copy.deepcopy(function(*arguments, **keywords)))
        except Exception as error:  # noqa: BLE001  an exception is an outcome
            return ReferenceFuture(error=error)

    def cancelled(self) -> ReferenceFuture:
        """A call that was cancelled before it began."""
        return ReferenceFuture(error=CancelledError())

    def starmap(self, function: Callable[..., Any], /, items: Iterable[Iterable[Any]]) -> list[ReferenceFuture]:
        """Call the function with the members of each item. One failed call does not end the others."""
        return [self.submit(function, *item) for item in items]

    def map(self, function: Callable[..., Any], /, *iterables: Iterable[Any]) -> list[ReferenceFuture]:
        """Call the function with each item, or with an item of each iterable."""
        return self.starmap(function, zip(*iterables, strict=False))

    def map_reduce(
        self,
        function: Callable[[Any], Any],
        items: Iterable[Any],
        combine: Callable[[Any, Any], Any],
        *,
        per: Literal["all", "key"] = "all",
        initial: Any = _NOTHING,
    ) -> ReferenceFuture:
        """Call the function with each item, and combine the results in their order: all of them, or by key."""
        return self.submit(_by_key if per == "key" else _of_all, self.map(function, items), combine, initial)


def _of_all(results: list[Any], combine: Callable[[Any, Any], Any], initial: Any) -> Any:
    first, *rest = results if initial is _NOTHING else [initial, *results]
    for result in rest:
        first = combine(first, result)
    return first


def _by_key(results: list[Any], combine: Callable[[Any, Any], Any], _: Any) -> dict[Any, Any]:
    combined: dict[Any, Any] = {}
    for result in results:
        for key, value in result.items() if isinstance(result, dict) else result:
            combined[key] = combine(combined[key], value) if key in combined else value
    return combined


def _calls_in(value: Any) -> Iterator[ReferenceFuture]:
    """The calls in an argument, in order, at any depth of tuples, lists and dicts."""
    if isinstance(value, ReferenceFuture):
        yield value
    elif isinstance(value, tuple | list):
        for one in value:
            yield from _calls_in(one)
    elif isinstance(value, dict):
        yield from _calls_in(list(value.values()))


def _with_results(value: Any) -> Any:
    """A copy of an argument, with the results of its calls."""
    if isinstance(value, ReferenceFuture):
        return value.result()
    if type(value) in (tuple, list):
        return type(value)(map(_with_results, value))
    if type(value) is dict:
        return {key: _with_results(one) for key, one in value.items()}
    return value if value is _NOTHING or callable(value) else copy.deepcopy(value)
