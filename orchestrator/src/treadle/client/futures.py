"""The futures of a session's calls."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, final, overload

from msgspec import Struct

from treadle.primitives.errors import FailureClass, MissingError, TreadleError

if TYPE_CHECKING:
    from treadle.executors.operations.calls import CallResult
    from treadle.orchestrator.dispatcher.ledger.attempt_records import AttemptRecord
    from treadle.orchestrator.dispatcher.ledger.ledger import Failed


_LOST = "Its result is gone from the store and the host. Call it again in a new session."


class CallFailed(TreadleError):
    """A call ended without a result, though its function raised nothing: its worker was lost too often, for example."""

    hint = ""

    def __init__(self, call: str, failure: str, message: str) -> None:
        """`failure`: a FailureClass, or `cancelled`."""
        super().__init__(f"call {call}: {failure}" + (f": {message}" if message else ""), self.hint)
        self.call, self.failure = call, failure


class CallTimedOut(CallFailed, TimeoutError):
    """A call took longer than its `timeout`."""

    hint = "Give its calls a longer `timeout`, or fewer items in a `chunk`."


class CallOutOfMemory(CallFailed, MemoryError):
    """A call needed more memory than it may have."""

    hint = "Give its calls more `memory`, or smaller arguments."


class SessionEnded(TreadleError):
    """The session takes no more calls, or ended before the call did."""


class WorkerTraceback(Exception):
    """The traceback of a worker, as the cause of the exception that its function raised."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f"\n{self.text.rstrip()}"


def call_failed(call: str, record: Failed) -> CallFailed:
    """The exception of a failure that the ledger holds."""
    kinds = {FailureClass.TIMED_OUT: CallTimedOut, FailureClass.OUT_OF_MEMORY: CallOutOfMemory}
    kind = next((kind for name, kind in kinds.items() if name == record.failure), CallFailed)
    return kind(call, record.failure, record.message)


def unreadable(call: str, error: Exception) -> Exception:
    """The exception of a call whose result cannot be rebuilt here."""
    if isinstance(error, MissingError):
        return CallFailed(call, "unreachable", f"{error.message}. {_LOST}")
    if isinstance(error, TreadleError):
        return error
    return CallFailed(call, "user error", f"its result cannot be rebuilt here: {type(error).__name__}: {error}")


WHOLE = -1


class CallKey(Struct, frozen=True, gc=False):
    """A call: its group, the partition within that, and the position within the partition."""

    key: str
    partition: int = 0
    position: int = 0
    """`WHOLE`: all calls of the partition; a future of them gets the list of their CallResults."""


@dataclass
class CallProgress:
    """The numbers of a function's calls."""

    calls: int = 0
    ended: int = 0
    failed: int = 0
    """Ended without a result."""
    running: int = 0


def error_of(result: CallResult) -> BaseException | None:
    """The exception of a call, with the worker's traceback as its cause."""
    if result.error is not None:
        result.error.__cause__ = WorkerTraceback(result.traceback)
    return result.error


class CallOwner(Protocol):
    """The methods of its session that a future calls."""

    def name(self, call: CallKey) -> str: ...

    def cancel(self, future: Future) -> bool: ...

    def withdraw(self, future: Future) -> None: ...

    def records(self, call: CallKey) -> Sequence[AttemptRecord]: ...

    def future(self, call: CallKey) -> Future: ...


_CHANGE = threading.Condition()
"""Guards the states of all futures, for a moment each. With one for each future, a collection of garbage would look at
many more objects."""


@final
class Future(concurrent.futures.Future[Any]):
    """The result of a call, now or later: a `concurrent.futures.Future` whose call outlives this process.

    It may be an argument of a later call, which then gets the result without passing this process.
    """

    def __init__(self, link: CallOwner, call: CallKey) -> None:
        super().__init__()
        self._condition = _CHANGE
        self.link, self.call = link, call

    @property
    def id(self) -> str:
        """`price-1/17`: the function's calls, and the number among them. Waits until the call is accepted, which means
        written."""
        return self.link.name(self.call)

    def result(self, timeout: float | None = None) -> Any:
        """The result of the call. Raises the exception of its function, with the worker's traceback as its cause;
        CallFailed for another failure, CancelledError, and TimeoutError after `timeout` seconds."""
        self._wait(timeout)
        return super().result(0)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """The exception that `result` would raise. None: the call succeeded. Raises CancelledError, TimeoutError."""
        self._wait(timeout)
        return super().exception(0)

    def _wait(self, timeout: float | None) -> None:
        """Until the future is done. The change of another one does not wake this thread."""
        if not self.done():
            concurrent.futures.wait((self,), timeout)

    def cancel(self) -> bool:
        """Do not begin the call. False: it has begun, or is one of several that run together."""
        return self.link.cancel(self)

    def __await__(self) -> Generator[Any, None, Any]:
        """`await future` returns its result. The call goes on if the task that waits is cancelled."""
        return asyncio.shield(asyncio.wrap_future(self)).__await__()

    def logs(self) -> Sequence[AttemptRecord]:
        """The output of the call, and its failed attempts, oldest first."""
        return self.link.records(self.call)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.call.key} {self._state.lower()}>"

    def __reduce__(self) -> Any:
        raise TypeError("a future is an argument only of calls of its own session; elsewhere use its `id`")


def show_running(future: Future) -> None:
    """The call of the future has begun."""
    if not (future.running() or future.done()):
        future.set_running_or_notify_cancel()


def settle(future: Future, result: CallResult) -> None:
    """Give the future its result."""
    error = error_of(result)
    if error is None:
        future.set_result(result.value)
    else:
        future.set_exception(error)


@final
class Futures(Sequence[Future]):
    """The futures of a map, in the order of its items. Each is made when it is asked for."""

    def __init__(self, link: CallOwner, key: str, calls: int, chunk: int, first: int = 0) -> None:
        """`first`: number of their first partition within the call."""
        self.link, self.key, self.chunk, self.first = link, key, chunk, first
        self._calls = calls

    def __len__(self) -> int:
        return self._calls

    @overload
    def __getitem__(self, index: int) -> Future: ...
    @overload
    def __getitem__(self, index: slice) -> list[Future]: ...
    def __getitem__(self, index: int | slice) -> Future | list[Future]:
        if isinstance(index, slice):
            return [self[one] for one in range(*index.indices(self._calls))]
        position = range(self._calls)[index]
        return self.link.future(CallKey(self.key, self.first + position // self.chunk, position % self.chunk))

    def results(self, timeout: float | None = None) -> Iterator[Any]:
        """The results in order, each as soon as it is there. Raises the exception of the first call that failed, and
        TimeoutError when one is not there `timeout` seconds after it is asked for."""
        for partition in self.partitions:
            together = self.link.future(CallKey(self.key, partition, WHOLE))
            for result in together.result(timeout):
                if (error := error_of(result)) is not None:
                    raise error
                yield result.value

    @property
    def partitions(self) -> range:
        """The partitions of these calls within the map."""
        return range(self.first, self.first - (-self._calls // self.chunk))

    def __reduce__(self) -> Any:
        raise TypeError("the futures of a map are an argument only of calls of their own session")
