"""Batches of joblib, and so the fits of scikit-learn, as calls of a session.

from joblib import parallel_config
from treadle.client import register_joblib, session

register_joblib()
with session("sweep") as s, parallel_config(backend="treadle", session=s):
    GridSearchCV(estimator, grid).fit(x, y)
"""

from __future__ import annotations

import concurrent.futures
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

from joblib.parallel import AutoBatchingMixin, FallbackToBackend, ParallelBackendBase, SequentialBackend

from treadle.executors.operations.joblib_batch import joblib_batch, unpack_writable
from treadle.primitives.encoding.by_value import pack
from treadle.primitives.errors import UsageError

from .environment import ClientEnvironment
from .futures import Future
from .open_session import Session
from .project_modules import take_by_value
from .session_calls import SessionCalls
from .sessions import session as open_session

_OF_PROCESSES = {"prefer", "require", "temp_folder", "verbose", "context"}
"""Parameters that joblib passes to each backend, for processes that it starts itself."""
Done = Callable[[concurrent.futures.Future[Any]], object]


class SessionBackend(AutoBatchingMixin, ParallelBackendBase):  # type: ignore[misc]  # joblib has no types
    """A backend of joblib whose batches are calls of a session. Made by joblib."""

    supports_retrieve_callback = True
    default_n_jobs = -1

    def __init__(self, *, nesting_level: int | None = None, **parameters: Any) -> None:
        """`parameters`: see `register_joblib`."""
        super().__init__(nesting_level=nesting_level)
        self._parameters = self._active = parameters
        """Of the backend, and of the current `Parallel`."""
        self._own: Session | None = None
        self._batches: _Batches | None = None

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        """The batches at a time: for -1 the slots of the executor, for -2 one less."""
        if n_jobs == 0:
            raise ValueError("n_jobs == 0 in Parallel has no meaning")
        n_jobs = self.default_n_jobs if n_jobs is None else n_jobs
        return n_jobs if n_jobs > 0 else max(1, _slots(**self._active) + 1 + n_jobs)

    def configure(
        self,
        n_jobs: int = 1,
        parallel: Any = None,
        *,
        max_nbytes: int | None = 2**20,
        mmap_mode: str | None = "r",
        **parameters: Any,
    ) -> int:
        """Open a session, unless one is given."""
        given = {key: value for key, value in parameters.items() if key not in _OF_PROCESSES}
        self._active = {**self._parameters, **given}
        n_jobs = self.effective_n_jobs(n_jobs)
        if n_jobs == 1:
            raise FallbackToBackend(SequentialBackend(nesting_level=self.nesting_level))
        if mmap_mode in ("r+", "w+"):
            raise UsageError(f"mmap_mode is {mmap_mode!r}, and workers share no memory that they write", "Use 'r'.")
        self.parallel = parallel
        self._shared_from = max_nbytes if mmap_mode == "r" else None
        self._open(n_jobs)
        return n_jobs

    def _open(self, n_jobs: int) -> None:
        calls = self._active.get("session")
        if calls is None:
            calls = self._own = open_session(**{"name": "joblib", **self._active})
        elif len(self._active) > 1:
            others = ", ".join(sorted(self._active.keys() - {"session"}))
            raise UsageError(f"a session is given, and {others}", "Give them to the session.")
        self._batches = _Batches(calls, n_jobs if n_jobs < calls.slots else sys.maxsize, self._shared_from)

    def submit(self, func: Any, callback: Done) -> None:
        """Run a batch, then `callback`, in a thread of the session."""
        assert self._batches is not None
        self._batches.add(func, callback)

    def retrieve_result_callback(self, out: concurrent.futures.Future[Any]) -> Any:
        """The results of a batch. Raises the exception of its function."""
        return unpack_writable(out.result())

    def stop_call(self) -> None:
        """Forget the arrays of a `Parallel` call: the next one may have changed them."""
        if self._batches is not None:
            self._batches.forget_arrays()

    def abort_everything(self, ensure_ready: bool = True) -> None:
        """Begin no further batch. In a session of its own the running ones are killed."""
        batches, self._batches = self._batches, None
        if batches is not None:
            batches.withdraw()
        if self._own is not None:
            self._own.cancel()
            self._own.close()
            self._own = None
        if ensure_ready:
            self._open(self.effective_n_jobs(self.parallel.n_jobs))

    def terminate(self) -> None:
        """End the session, if it is the backend's own."""
        self._batches = None
        own, self._own = self._own, None
        if own is not None:
            own.end(wait=False)
        self.reset_batch_stats()


def _slots(
    session: SessionCalls | None = None,
    executor: str | None = None,
    profile: str | None = None,
    home: str | PathLike[str] | None = None,
    **_: object,
) -> int:
    """The slots of the given session, or of a new session with these settings."""
    if session is not None:
        return session.slots
    environment = ClientEnvironment(profile, None if home is None else Path(home))
    return environment.capabilities(executor or environment.profile.executor).slots


class _Batches:
    """The batches of a backend: at most `limit` at a time are calls of the session."""

    def __init__(self, calls: SessionCalls, limit: int, shared_from: int | None) -> None:
        """`shared_from`: bytes from which an array is sent once for all batches. None: no array is."""
        self._calls, self._limit, self._shared_from = calls, limit, shared_from
        self._lock, self._withdrawn = threading.Lock(), False
        self._queue: deque[tuple[Any, Done]] = deque()
        self._sent: set[Future] = set()
        self._arrays: dict[int, tuple[weakref.ref[Any], Future]] = {}
        """Identity of a large array -> the array, and the call whose result it is."""

    def add(self, batch: Any, done: Done) -> None:
        """Send a batch, now or when another one ends. An error of sending is the result of the batch."""
        with self._lock:
            self._queue.append((batch, done))
        self._send()

    def withdraw(self) -> None:
        """Do not begin the batches that have not begun, and report no further end to joblib."""
        with self._lock:
            self._withdrawn = True
            self._queue.clear()
            for future in self._sent:
                future.link.withdraw(future)

    def forget_arrays(self) -> None:
        with self._lock:
            self._arrays.clear()

    def _send(self) -> None:
        while (sent := self._next()) is not None:
            future, done = sent
            future.add_done_callback(partial(self._end, done))  # without the lock: it may be called here

    def _next(self) -> tuple[concurrent.futures.Future[Any], Done] | None:
        """Call the next batch, if one may begin."""
        with self._lock:
            if not self._queue or len(self._sent) >= self._limit:
                return None
            batch, done = self._queue.popleft()
            try:
                future = self._call(batch)
            except Exception as error:  # noqa: BLE001  joblib waits for a batch until its future has an outcome
                failed = concurrent.futures.Future[Any]()
                failed.set_exception(error)
                return failed, done
            self._sent.add(future)
            return future, done

    def _end(self, done: Done, future: concurrent.futures.Future[Any]) -> None:
        with self._lock:
            self._sent -= {future}
        self._send()
        if not self._withdrawn:
            done(future)

    def _call(self, batch: Any) -> Future:
        arrays: list[Future] = []

        def refer(found: object) -> int | None:
            if not self._is_large(found):
                return None
            arrays.append(self._shared(found))
            return len(arrays) - 1

        take_by_value()
        return self._calls.submit(joblib_batch, pack(batch, refer), arrays)

    def _is_large(self, found: object) -> bool:
        numpy = sys.modules.get("numpy")
        if numpy is None or self._shared_from is None:
            return False
        return isinstance(found, numpy.ndarray) and found.nbytes >= self._shared_from

    def _shared(self, array: Any) -> Future:
        """The future of an array, which is sent when it is found first."""
        known, future = self._arrays.get(id(array), (None, None))
        if known is None or known() is not array or future is None:
            future = self._calls.put(array)
            self._arrays[id(array)] = weakref.ref(array), future
        return future
