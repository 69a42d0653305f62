"""The methods of an open session, and its view as an executor."""

from __future__ import annotations

import asyncio
import hashlib
import sys
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence, Sized
from concurrent.futures import Executor
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, Self

from treadle.orchestrator.run_store.call_log import (
    Called,
    FunctionAdded,
    Need,
    NoMoreCalls,
)
from treadle.orchestrator.run_store.run_files import Submission
from treadle.primitives.blocks import Blocks
from treadle.primitives.encoding.by_value import Packed, pack
from treadle.primitives.encoding.references import BlockRef
from treadle.primitives.errors import UsageError
from treadle.primitives.shuffling.folds import NOTHING
from treadle.primitives.stores.shared_memory import HostFolder

from .argument_futures import ArgumentFutures
from .call_content import CallContent
from .connection import ClientConnection
from .futures import CallKey, Future, Futures
from .map_reduction import Arguments, CallStep, ItemTasks, reduce_all, reduce_by_key
from .project_modules import take_by_value
from .session_link import SessionLink
from .sync_client import wait_for

if TYPE_CHECKING:
    from .run_views import State
    from .session_display import SessionDisplay

_PARTITIONS = 1000
"""Partitions of a map with an automatic chunk."""
_INLINE = 8 * 2**10


class Session:
    """An open session. Use it as a context manager; any number of threads may call it."""

    def __init__(
        self, connection: ClientConnection, run: str, *, detach: bool, show: bool | None = None, reuse: bool = False
    ) -> None:
        """Made by `session` and `attach`."""
        self.id, self._connection, self._detach, self._reuse = run, connection, detach, reuse
        env = connection.environment
        self._files = env.files(run)
        self._blocks = Blocks(env.store, run, HostFolder(env.home.host_root))
        self._link = SessionLink(self._files, self._blocks, self.look)
        self._functions: dict[Hashable, str] = {}
        self._display = self._shown(show)

    def __repr__(self) -> str:
        return f"<Session {self.id}>"

    def _shown(self, show: bool | None) -> SessionDisplay | None:
        from .session_display import SessionDisplay, TerminalView, find_view

        view = None if show is False else find_view() or (TerminalView() if show else None)
        return SessionDisplay(self._files, self._link.counts, view) if view else None

    # -- calls

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **keywords: Any) -> Future:
        """Call the function once. Raises UsageError for a function or arguments that cannot be pickled.

        The arguments are copied now: a later change has no effect. A future among them, of this session and at any
        depth, stands for its result.
        """
        return self.with_options().submit(function, *arguments, **keywords)

    def map(
        self, function: Callable[..., Any], /, *iterables: Iterable[Any], chunk: int | Literal["auto"] = "auto"
    ) -> Futures:
        """Call the function with each item, or with an item of each iterable. One failed call does not end the others.

        `chunk`: calls that run one after another as one task; `auto`: one for up to 1,000 calls, else a thousandth.
        """
        return self.with_options().map(function, *iterables, chunk=chunk)

    def starmap(
        self, function: Callable[..., Any], /, items: Iterable[Iterable[Any]], *, chunk: int | Literal["auto"] = "auto"
    ) -> Futures:
        """As `map`, with the members of each item as arguments."""
        return self.with_options().starmap(function, items, chunk=chunk)

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
        options = self.with_options()
        return options.map_reduce(function, items, combine, per=per, initial=initial, chunk=chunk, reducers=reducers)

    def with_options(
        self,
        *,
        executor: str = "",
        retries: int = 0,
        timeout: float = 0.0,
        memory: int = 0,
        reuse: bool | None = None,
    ) -> SessionCalls:
        """Calls with other settings.

        - `executor`: the place of the calls; default: that of the session.
        - `retries`: further attempts after an exception. Lost workers are replaced in any case.
        - `timeout`: seconds that a task may take; 0: no limit.
        - `memory`: bytes that a task may allocate; 0: the slot's limit.
        - `reuse`: take the results of an equal call of this session, if there is one; default: that of the session.
        """
        return SessionCalls(self, _Options(executor, retries, timeout, memory), self._reuse if reuse is None else reuse)

    def executor(self) -> Executor:
        """The session as a `concurrent.futures.Executor`, for libraries that take one."""
        from .session_executor import SessionExecutor

        return SessionExecutor(self.submit)

    # -- looking

    @property
    def slots(self) -> int:
        """The calls that can run at the same time: the slots of the session's executor."""
        return self.with_options().slots

    def futures(self) -> list[Future | Futures]:
        """The calls of the session so far, of all clients, in order: a Future for `submit`, Futures for a map."""
        found: list[Future | Futures] = []
        for called in self._link.calls():
            if called.inner:
                continue
            single = called.calls == 1
            found.append(self._link.future(CallKey(called.key)) if single else self._futures(called))
        return found

    def __getitem__(self, id: str) -> Future:
        """The future of a call by its id. Raises KeyError for an unknown one."""
        segment, _, rest = id.partition("/")
        partition, _, position = rest.partition("/")
        call = self._link.key_of(segment, int(partition))
        return self._link.future(call._replace(position=int(position or 0)))

    def _futures(self, called: Called) -> Futures:
        return Futures(self._link, called.key, called.calls, called.chunk)

    def look(self) -> State:
        """The state of the session's run. If it is open, a driver is ensured on the embedded default. Blocking."""
        return wait_for(self._connection.have_driver(self.id))

    # -- the end

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        interrupted = kind is not None and issubclass(kind, KeyboardInterrupt)
        try:
            self.end(wait=kind is None and not self._detach)
        except KeyboardInterrupt:
            interrupted = True
            self.close()
            raise
        finally:
            if interrupted:
                sys.stderr.write(f"the calls of session {self.id} go on; attach({self.id!r}) finds them again\n")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: Any) -> None:
        await asyncio.to_thread(self.__exit__, *error)

    def end(self, *, wait: bool = True) -> None:
        """Take no more calls, from no client. The accepted calls go on; their results stay until `treadle gc`.

        `wait`: until all calls of this client have ended.
        """
        self._link.send(NoMoreCalls())
        if wait:
            self._link.wait_for_own()
        self._close(ended=wait)

    def close(self) -> None:
        """Let go of the session, which stays open for `attach`, once the calls are accepted. They go on.

        A session without calls and without work ends after an hour.
        """
        self._close(ended=False)

    def _close(self, *, ended: bool) -> None:
        self._link.close()
        if self._display:
            self._display.close(ended=ended)
        self._connection.close()

    def cancel(self) -> None:
        """Stop the session's run: no further call begins, and running ones are killed."""
        wait_for(self._cancelled())

    async def _cancelled(self) -> None:
        await (await self._connection.runs()).cancel(self.id)

    # -- for SessionCalls

    def slots_of(self, executor: str) -> int:
        """The slots of an executor. Empty: that of the session."""
        executor = executor or self._files.load(Submission, "spec").executor
        return self._connection.environment.capabilities(executor).slots

    def call(
        self,
        function: Callable[..., Any],
        calls: Iterable[Arguments],
        options: _Options,
        chunk: int = 1,
        step: CallStep | None = None,
        reuse: bool = False,
    ) -> Futures:
        """Send calls of one function, `chunk` in each partition. `reuse`: unless there is an equal call."""
        step, calls = step or CallStep(function), iter(calls)
        content = self._content(function, (*options, *step[1:], chunk)) if reuse else None
        needs, parts, count = list[tuple[Need, ...]](), list[list[Any]](), 0
        while some := list(islice(calls, chunk)):
            packed, needed = self._packed(some)
            needs.append(needed)
            parts.append([packed])
            count += len(some)
            if content:
                content.add(some, needed, ArgumentFutures(self._link).name)
        key, found = self._keyed(content)
        if parts and not found:
            name = self._function(function, options, step, content)
            named = tuple(needs) if any(needs) and not step.parts_of else ()
            self._link.send(Called(key, name, self._put(parts), count, chunk, named, step.parts_of, step.inner))
        return Futures(self._link, key, count, chunk)

    def _content(self, function: Callable[..., Any], settings: tuple[object, ...]) -> CallContent:
        with _taken(f"{_name(function)} cannot be taken by value", "Pass what it captures as an argument."):
            return CallContent(function, settings)

    def _keyed(self, content: CallContent | None) -> tuple[str, bool]:
        """A key for calls, and whether they were made before."""
        if content is None:
            return self._link.key(), False
        claims = ((key, self._link.claim(key)) for key in content.numbered())
        return next((key, found) for key, found in claims if found or not self._link.knows(key))

    def _put(self, parts: list[list[Any]]) -> BlockRef:
        return self._blocks.put(f"calls/{self._link.key()}", "objects", parts, "store", _INLINE)

    def _packed(self, calls: Sequence[Arguments]) -> tuple[tuple[int, Packed], tuple[Need, ...]]:
        names = ArgumentFutures(self._link)
        with _taken("the arguments cannot be pickled", "Pass plain data, or what makes it: a path, an address."):
            return (len(calls), pack(list(calls), names.name)), tuple(names.needs)

    def _function(
        self, function: Callable[..., Any], options: _Options, step: CallStep, content: CallContent | None
    ) -> str:
        """The key of a function with its options. Equal functions are sent once."""
        name = _name(step.named)
        with _taken(f"{name} cannot be taken by value", "Pass what it captures as an argument."):
            packed = pack(function)
        known = content.function if content else (hashlib.sha256(packed[0]).digest(), options, name, step.parts)
        if known not in self._functions or (len(packed) > 1 and not content):
            key = content.function if content else self._link.key()
            if content:
                self._tell_change(name, content)
            parts = content.parts if content else {}
            self._link.send(FunctionAdded(key, name, self._put([[packed]]), *options, step.parts, parts))
            self._functions[known] = key
        return self._functions[known]

    def _tell_change(self, name: str, content: CallContent) -> None:
        """Say why the calls of another client are not found."""
        before = self._link.latest(name)
        if before and before.key not in self._functions.values():
            sys.stderr.write(f"{name} runs again: {content.change(before.content, before.key)} changed\n")


class _Options(tuple[str, int, float, int]):
    """Executor, retries, timeout, memory."""

    def __new__(cls, executor: str, retries: int, timeout: float, memory: int) -> Self:
        if retries < 0 or timeout < 0 or memory < 0:
            raise UsageError("retries, timeout and memory are at least 0", "Leave out those that set no limit.")
        return super().__new__(cls, (executor, retries, timeout, memory))


class SessionCalls:
    """Calls of a session with their own settings. Made by `Session.with_options`."""

    def __init__(self, of: Session, options: _Options, reuse: bool) -> None:
        self._session, self._options, self._reuse = of, options, reuse

    @property
    def slots(self) -> int:
        """The slots of the executor of these calls."""
        return self._session.slots_of(self._options[0])

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **keywords: Any) -> Future:
        """As `Session.submit`."""
        return self._session.call(function, [(arguments, keywords)], self._options, reuse=self._reuse)[0]

    def map(
        self, function: Callable[..., Any], /, *iterables: Iterable[Any], chunk: int | Literal["auto"] = "auto"
    ) -> Futures:
        """As `Session.map`."""
        known = [len(one) for one in iterables if isinstance(one, Sized)]
        items = zip(*iterables, strict=False)
        if chunk == "auto" and len(known) == len(iterables):  # the items need not be in memory together
            chunk = _automatic(min(known, default=0))
        return self.starmap(function, items, chunk=chunk)

    def starmap(
        self, function: Callable[..., Any], /, items: Iterable[Iterable[Any]], *, chunk: int | Literal["auto"] = "auto"
    ) -> Futures:
        """As `Session.starmap`."""
        if chunk == "auto":
            items = list(items)
            chunk = _automatic(len(items))
        calls: Iterable[Arguments] = ((tuple(item), {}) for item in items)
        return self._session.call(function, calls, self._options, _checked(chunk), reuse=self._reuse)

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
        """As `Session.map_reduce`."""
        items = items if isinstance(items, Collection) else list(items)
        tasks = ItemTasks(items, _checked(_automatic(len(items)) if chunk == "auto" else chunk))
        send = partial(self._session.call, options=self._options, reuse=self._reuse)
        if per == "all" and reducers == "auto":
            return reduce_all(send, function, combine, tasks, initial)
        if per == "key" and initial is NOTHING:
            return reduce_by_key(send, function, combine, tasks, reducers)
        raise UsageError(
            f"map_reduce per {per!r} has other options", "`initial` is for per all, `reducers` for per key."
        )


def _automatic(calls: int) -> int:
    return max(1, -(-calls // _PARTITIONS))


def _checked(chunk: int) -> int:
    if chunk < 1:
        raise UsageError(f"chunk is {chunk}", "Give the number of calls in a task, at least 1.")
    return chunk


@contextmanager
def _taken(refusal: str, hint: str) -> Iterator[None]:
    """Pickle by value. Raises UsageError in place of the error of an object."""
    take_by_value()
    try:
        yield
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(f"{refusal}: {type(error).__name__}: {error}", hint) from error


def _name(function: Callable[..., Any]) -> str:
    """A name for the function's calls, fit for the name of a folder."""
    text = str(getattr(function, "__name__", type(function).__name__))
    return "".join(char if char.isascii() and (char.isalnum() or char == "_") else "_" for char in text)[:60] or "call"
