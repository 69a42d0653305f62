"""The pool of the standard library over tasks at a keeper, which knows the task of each worker.

When a worker dies its task fails with WorkerLost, or runs again. The standard library waits for it for ever.
"""

from __future__ import annotations

import contextlib
import functools
import multiprocessing.pool
import multiprocessing.queues
import threading
import weakref
from collections import deque
from collections.abc import Callable
from multiprocessing.process import BaseProcess, current_process
from typing import Any

from treadle.primitives.errors import TreadleError
from treadle.primitives.objects import Handle, ObjectLost, ObjectMissing
from treadle.primitives.objects.handle import drop_target
from treadle.primitives.objects.large_values import Packed

from .by_value import dumps, loads
from .errors import WorkerLost
from .places import new, packed, remove, unpacked, workers
from .processes import Process
from .state import PoolTasks

_SimpleQueue = multiprocessing.queues.SimpleQueue  # `install` replaces the name
_QUEUED = 100
"""Tasks that wait for a worker, above which an iterable is not read further."""


class WorkerSide:
    """Both queues of a worker: `get` takes a task, `put` sends its result."""

    def __init__(self, tasks: Handle[PoolTasks]) -> None:
        self._tasks = tasks
        self._body: Packed = b""

    def get(self) -> Any:
        """Wait for a task; None: end."""
        try:
            body = self._tasks.take(current_process().name)
        except (ObjectLost, ObjectMissing):  # the pool is terminated
            return None
        self._body = body or b""
        return None if body is None else loads(unpacked(body, keep=True))

    def put(self, result: tuple[Any, int, Any]) -> None:
        body = packed(dumps(result))
        with contextlib.suppress(ObjectLost, ObjectMissing):
            self._tasks.finish(result[:2], body)
        remove(self._body)


class PoolSide(WorkerSide):
    """The queues as the pool sees them. `put` is that of its second queue: a sentinel for the thread of results."""

    def __init__(self, tasks: Handle[PoolTasks], pool: Pool) -> None:
        super().__init__(tasks)
        self._pool = weakref.ref(pool)
        self._collected: deque[tuple[Any, Packed | None, str]] = deque()

    def __reduce__(self) -> Any:
        return WorkerSide, (self._tasks,)

    def add(self, task: tuple[Any, ...] | None) -> None:
        """Add a task for the workers; None lets one of them end."""
        if task is not None:
            self._tasks.add(task[:2], packed(dumps(task)))
        else:
            with contextlib.suppress(TreadleError):
                self._tasks.add(None, None)

    def put(self, result: None) -> None:  # type: ignore[override]  # noqa: ARG002
        """Let `collect` return None."""
        with contextlib.suppress(TreadleError):
            self._tasks.finish(None, None)

    def collect(self) -> Any:
        """Wait for a result. A task whose worker died has WorkerLost as its result."""
        if not self._collected:
            try:
                self._collected.extend(self._tasks.collect())
            except TreadleError as error:  # the keeper has ended
                if (pool := self._pool()) is not None:
                    pool._fail(error)
                raise EOFError from error
        key, body, worker = self._collected.popleft()
        if worker:
            text = f"the worker process {worker} ended while it ran the task, which may have taken effect"
            lost = WorkerLost(text, "Use Pool(treadle_retries=1) for tasks that may run again.")
            return (*key, (False, lost))
        try:
            return None if body is None else loads(unpacked(body))
        except Exception as error:  # noqa: BLE001  of the class of the result
            return (*key, (False, error))

    def close(self) -> None:
        with contextlib.suppress(TreadleError):
            self._tasks.close()

    def drop(self) -> None:
        with contextlib.suppress(TreadleError):
            drop_target(self._tasks)


class _PoolContext:
    """The parts of a context that a pool uses: its queue is for threads."""

    def __init__(self, process: type[BaseProcess]) -> None:
        self.Process = process
        self.SimpleQueue = functools.partial(_SimpleQueue, ctx=threading)


class Pool(multiprocessing.pool.Pool):
    """A pool of processes. `treadle_retries`: how often a task runs again when its worker died."""

    _inqueue: PoolSide

    def __init_subclass__(cls) -> None:
        cls._setup_queues = Pool._setup_queues  # type: ignore[method-assign]  # joblib's pool has queues of its own

    def __init__(
        self,
        processes: int | None = None,
        initializer: Callable[..., object] | None = None,
        initargs: Any = (),
        maxtasksperchild: int | None = None,
        context: Any = None,
        treadle_retries: int = 0,
    ) -> None:
        if treadle_retries < 0:
            raise ValueError("treadle_retries must not be negative")
        self._retries = treadle_retries
        of: Any = _PoolContext(getattr(context, "Process", Process))
        if processes is None and (at := workers()) is not None:
            processes = at.slots
        super().__init__(processes, initializer, initargs, maxtasksperchild, of)

    def _setup_queues(self) -> None:
        side = PoolSide(new(PoolTasks, self._retries, _QUEUED), self)
        self._inqueue = self._outqueue = side
        self._quick_put, self._quick_get = side.add, side.collect

    def _fail(self, error: BaseException) -> None:
        """All results are lost: end the pool, and raise the error from each."""
        self.terminate()
        for job in list(self._cache.values()):  # type: ignore[attr-defined]
            if isinstance(job, multiprocessing.pool.IMapIterator):
                job._items.append((False, error))  # type: ignore[attr-defined]
                job._set_length(job._index)  # type: ignore[attr-defined]
            else:
                job._number_left = 1
                job._set(0, (False, error))

    def _get_sentinels(self) -> list[Any]:
        return [self._change_notifier._reader]  # type: ignore[attr-defined]

    @staticmethod
    def _help_stuff_finish(inqueue: PoolSide, task_handler: object, size: int) -> None:  # noqa: ARG004
        inqueue.close()

    @classmethod
    def _terminate_pool(cls, taskqueue: Any, inqueue: PoolSide, *others: Any) -> None:
        super()._terminate_pool(taskqueue, inqueue, *others)  # type: ignore[misc]
        inqueue.drop()
