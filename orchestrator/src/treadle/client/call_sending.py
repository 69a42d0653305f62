"""From functions and their arguments to the records of the call log."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any, Self

from treadle.orchestrator.run_store.call_log import Called, Need
from treadle.primitives.blocks import Blocks
from treadle.primitives.encoding.by_value import Packed, pack
from treadle.primitives.encoding.references import BlockRef
from treadle.primitives.errors import UsageError

from .argument_futures import ArgumentFutures
from .argument_values import ArgumentValues, Place, SharedValues
from .call_content import CallContent
from .futures import Future, Futures
from .map_reduction import Arguments, CallStep
from .project_modules import pickling
from .sent_functions import FunctionUse, SentFunctions
from .session_link import SessionLink

_INLINE = 8 * 2**10


class CallOptions(tuple[str, int, float, int, int]):
    """Executor, retries, timeout, memory, maximum concurrency."""

    def __new__(
        cls, executor: str = "", retries: int = 0, timeout: float = 0.0, memory: int = 0, max_concurrency: int = 0
    ) -> Self:
        if min(retries, timeout, memory, max_concurrency) < 0:
            text = "retries, timeout, memory and max_concurrency are at least 0"
            raise UsageError(text, "Leave out those that set no limit.")
        return super().__new__(cls, (executor, retries, timeout, memory, max_concurrency))


class CallSender:
    """Sends the calls of a session. For any number of threads."""

    def __init__(self, link: SessionLink, blocks: Blocks, place: Callable[[str], Place]) -> None:
        """`place`: of large values for the calls of an executor."""
        self._link, self._blocks, self._place = link, blocks, place
        self._values = ArgumentValues(link, blocks)
        self._functions = SentFunctions(link, self._put)

    def send(
        self,
        function: Callable[..., Any],
        calls: Iterable[Arguments],
        options: CallOptions,
        chunk: int = 1,
        *,
        step: CallStep,
        reuse: bool = False,
        fixed: bool = True,
    ) -> Futures:
        """Send calls of one function, `chunk` in each partition. `reuse`: unless there is an equal call. `fixed`: no
        argument changes while `calls` are read.

        Raises UsageError for a function or arguments that cannot be pickled.
        """
        with SharedValues(self._values, partial(self._place, options[0]), fixed=fixed) as shared:
            return self._send(function, iter(calls), options, chunk, step, reuse, shared.key)

    def _send(
        self,
        function: Callable[..., Any],
        calls: Iterator[Arguments],
        options: CallOptions,
        chunk: int,
        step: CallStep,
        reuse: bool,
        share: Callable[[object], str],
    ) -> Futures:
        content = self._content(function, (*options, *step[1:], chunk)) if reuse else None
        needs, parts, count = list[tuple[Need, ...]](), list[list[Any]](), 0
        while some := list(islice(calls, chunk)):
            packed, needed = self._packed(some, share)
            needs.append(needed)
            parts.append([packed])
            count += len(some)
            if content:
                equal = [(self._values.content(key), partition) for key, partition in needed]
                content.add(some, equal, ArgumentFutures(self._link).name)
        key, found = self._keyed(content)
        if parts and not found:
            name = self._function(function, options, step, content)
            named = tuple(needs) if any(needs) and not step.parts_of else ()
            self._link.send(Called(key, name, self._put(parts), count, chunk, named, step.parts_of, step.gives))
        return Futures(self._link, key, count, chunk)

    def _function(
        self, function: Callable[..., Any], options: CallOptions, step: CallStep, content: CallContent | None
    ) -> str:
        use = FunctionUse(_name(step.named), options, step.gives != "nothing", step.parts)
        return self._functions.key(function, use, content)

    def _content(self, function: Callable[..., Any], settings: tuple[object, ...]) -> CallContent:
        with pickling(f"{_name(function)} cannot be taken by value", "Pass what it captures as an argument."):
            return CallContent(function, settings)

    def _keyed(self, content: CallContent | None) -> tuple[str, bool]:
        """A key for calls, and whether they were made before."""
        if content is None:
            return self._link.key(), False
        claims = ((key, self._link.claim(key)) for key in content.numbered())
        return next((key, found) for key, found in claims if found or not self._link.knows(key))

    def _put(self, parts: list[list[Any]]) -> BlockRef:
        return self._blocks.put(f"calls/{self._link.key()}", "objects", parts, "store", _INLINE)

    def put(self, value: object, options: CallOptions) -> Future:
        """Send a value for calls with these options. Raises UsageError for a value that cannot be pickled."""
        with pickling("the value cannot be pickled", "Pass plain data."):
            return self._values.put(value, self._place(options[0]))

    def _packed(
        self, calls: Sequence[Arguments], share: Callable[[object], str]
    ) -> tuple[tuple[int, Packed], tuple[Need, ...]]:
        names = ArgumentFutures(self._link, share)
        with pickling("the arguments cannot be pickled", "Pass plain data, or what makes it: a path, an address."):
            return (len(calls), pack(list(calls), names.name)), tuple(names.needs)


def _name(function: Callable[..., Any]) -> str:
    """A name for the function's calls, fit for the name of a folder."""
    text = str(getattr(function, "__name__", type(function).__name__))
    return re.sub(r"\W", "_", text, flags=re.ASCII)[:60] or "call"
