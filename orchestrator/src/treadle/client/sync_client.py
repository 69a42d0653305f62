"""The synchronous client: the methods of the asyncio client, called on an event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from functools import cache, wraps
from os import PathLike
from typing import Any, Concatenate, ParamSpec, Self, TypeVar
from weakref import finalize

from .async_client import AsyncClient, AsyncRun, AsyncStage

P = ParamSpec("P")
T = TypeVar("T")


def wait_for(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine on the loop. A KeyboardInterrupt cancels the coroutine."""
    future = asyncio.run_coroutine_threadsafe(work, _loop(os.getpid()))
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


@cache
def _loop(process: int) -> asyncio.AbstractEventLoop:  # noqa: ARG001  # a forked process has no threads
    """The event loop of all synchronous clients of this process, in a daemon thread."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="treadle-client", daemon=True).start()
    return loop


def _blocking(method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Any, P], T]:
    """The method of the twin, waited for."""

    @_described(method)
    def call(self: Any, /, *arguments: P.args, **options: P.kwargs) -> T:
        return wait_for(method(self.twin, *arguments, **options))

    return call


def _starting(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, AsyncRun]],
) -> Callable[Concatenate[Any, P], Run]:
    """As `_blocking`, for a method that returns a run."""

    @_described(method)
    def call(self: Any, /, *arguments: P.args, **options: P.kwargs) -> Run:
        return Run(wait_for(method(self.twin, *arguments, **options)))

    return call


def _iterating(method: Callable[Concatenate[Any, P], AsyncIterator[T]]) -> Callable[Concatenate[Any, P], Iterator[T]]:
    """The iterator of the twin's method, each item waited for."""

    @_described(method)
    def call(self: Any, /, *arguments: P.args, **options: P.kwargs) -> Iterator[T]:
        items = method(self.twin, *arguments, **options)
        end: Any = object()
        while (item := wait_for(_next(items, end))) is not end:
            yield item

    return call


async def _next(items: AsyncIterator[T], end: T) -> T:
    return await anext(items, end)


def _described(method: Callable[..., Any]) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Take over the signature and the docstring, which then names the synchronous classes."""

    def described(call: Callable[P, T]) -> Callable[P, T]:
        wraps(method)(call)
        call.__doc__ = (method.__doc__ or "").replace("Async", "")
        return call

    return described


class Client:
    """The runs of one environment, for scripts and notebooks.

        with Client() as client:
            run = client.run(wf, {"corpus": "books/*.txt"})
            print(run.outputs, run.stage("count").table())

    It is AsyncClient without `await`, and may be used from several threads. An event loop of the caller does not
    matter. After Ctrl-C a method raises KeyboardInterrupt; the run goes on.
    """

    def __init__(self, *, profile: str | None = None, home: str | PathLike[str] | None = None) -> None:
        """`profile`: a name in the home's `profiles.toml`; default: `$TREADLE_PROFILE`, or the embedded default.
        `home`: a folder; default: `$TREADLE_HOME`, or `~/.treadle`."""
        self.twin = AsyncClient(profile=profile, home=home)
        finalize(self, self.twin.detach)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    close = _blocking(AsyncClient.close)
    submit = _starting(AsyncClient.submit)
    run = _starting(AsyncClient.run)
    attach = _starting(AsyncClient.attach)
    list = _blocking(AsyncClient.list)
    show = _blocking(AsyncClient.show)
    watch = _iterating(AsyncClient.watch)
    result = _blocking(AsyncClient.result)
    logs = _blocking(AsyncClient.logs)
    resume = _blocking(AsyncClient.resume)
    cancel = _blocking(AsyncClient.cancel)


class Run:
    """A run of a client, by its id. Made by `Client.submit`, `run` and `attach`, and by `Workflow.run` and `submit`.
    A notebook draws it as a graph."""

    def __init__(self, twin: AsyncRun) -> None:
        self.twin, self.id = twin, twin.id

    def __repr__(self) -> str:
        return f"<Run {self.id}>"

    def _repr_html_(self) -> str:
        return self.show()._repr_html_()

    @property
    def outputs(self) -> dict[str, Any]:
        """The outputs that the workflow declares. Waits for the run's end. Raises RunFailed."""
        return wait_for(self.twin.outputs())

    def stage(self, name: str) -> Stage:
        """The results of a stage."""
        return Stage(self.twin.stage(name))

    wait = _starting(AsyncRun.wait)
    show = _blocking(AsyncRun.show)
    watch = _iterating(AsyncRun.watch)
    logs = _blocking(AsyncRun.logs)
    object = _blocking(AsyncRun.object)
    resume = _blocking(AsyncRun.resume)
    cancel = _blocking(AsyncRun.cancel)


class Stage:
    __doc__ = (AsyncStage.__doc__ or "").replace("Async", "")

    def __init__(self, twin: AsyncStage) -> None:
        self.twin = twin

    records = _blocking(AsyncStage.records)
    table = _blocking(AsyncStage.table)
    array = _blocking(AsyncStage.array)
    checkpoint = _blocking(AsyncStage.checkpoint)
