"""Runs cases on warm executors from a synchronous test: one event loop in a thread, for a whole session."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, TypeVar, cast

from treadle.dsl.validation.inputs import resolve_inputs
from treadle.executors.interface import Executor
from treadle.executors.isolated.executor import IsolatedExecutor
from treadle.executors.local.executor import LocalExecutor
from treadle.orchestrator.dispatcher.blocks.host_blocks import Hosts
from treadle.orchestrator.scheduler.instructions import Problem
from treadle.primitives import sealing
from treadle.primitives.asyncio_tasks import spawn
from treadle.primitives.errors import DataError, UsageError
from treadle.primitives.stores.shared_memory import HostFolder
from treadle.primitives.stores.store import Store

from .engine import Engine, EngineFailure, EngineResult
from .strategies import Case

T = TypeVar("T")


class Harness:
    """Executors, stores and a key for a session of tests; all files are below `folder`."""

    def __init__(self, folder: Path, root: Path, environment: Mapping[str, str] | None = None) -> None:
        """`root`: the folder that contains the functions' module."""
        self.folder, self.root = folder, root
        self._environment = {**os.environ, **(environment or {})}
        self.key = sealing.load_or_create_key(folder / "key")
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="harness", daemon=True)
        self._thread.start()
        self._executors: list[Executor] = []
        self._hosts: list[Hosts] = []

    def close(self) -> None:
        for executor in self._executors:
            self.wait(executor.stop())
        for host in self._hosts:
            host.close()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def wait(self, work: Coroutine[Any, Any, T], seconds: float = 60.0) -> T:
        """The result of a coroutine that runs on the harness's loop.

        Raises TimeoutError after `seconds`, with the stack of each task of the loop; the coroutine is cancelled.
        """
        return asyncio.run_coroutine_threadsafe(_in_time(work, seconds), self._loop).result()

    def local(
        self,
        slots: int,
        host_root: Path | None,
        entered: Callable[[], AbstractContextManager[None]] = nullcontext,
        environment: Mapping[str, str] | None = None,
        room: int | None = None,
    ) -> LocalExecutor:
        """A started local executor. `environment` is added to that of its workers, which start inside the context
        `entered`.

        `room`: bytes of records before they are spilled.
        """
        executor = LocalExecutor(
            run_key=lambda run: sealing.run_key(self.key, run),
            slots=slots,
            memory=1 << 30,
            room=room,
            host_root=None if host_root is None else str(host_root),
            environment={**self._environment, **(environment or {})},
        )
        self.wait(_start(executor, entered))
        self._executors.append(executor)
        return executor

    def isolated(self, slots: int) -> IsolatedExecutor:
        """A started executor whose attempts are separate processes."""
        executor = IsolatedExecutor(key_file=str(self.folder / "key"), slots=slots, environment=self._environment)
        self.wait(executor.start())
        self._executors.append(executor)
        return executor

    def hosts(self, store: Store, roots: Sequence[Path], addresses: Sequence[str]) -> list[Hosts]:
        """Serve each of the host folders at its address until the harness is closed."""
        made = [Hosts(store, self.key, HostFolder(root), at) for root, at in zip(roots, addresses, strict=True)]
        self._hosts += made
        return made

    def engine(self, store: Store, executor: Executor, host_root: Path | None, hosts: Sequence[Hosts] = ()) -> Engine:
        return Engine(store, executor, self.key, host_root, hosts)

    def submit(self, engine: Engine, case: Case, base: Path, run: str) -> EngineFailure | None:
        """Write the run. An immediate rejection counts as a failure of the run."""
        spec = case.spec()
        try:
            engine.submit(spec, resolve_inputs(spec, case.inputs), base=base, roots=[self.root], run=run)
        except (UsageError, DataError) as refused:
            return EngineFailure(Problem("user error", str(refused)))
        return None

    def result(self, engine: Engine, run: str, **options: Any) -> EngineResult | EngineFailure:
        """Execute a submitted run to its end."""
        try:
            return self.wait(engine.run(run, **options))
        except EngineFailure as failure:
            return failure

    def run(self, engine: Engine, case: Case, base: Path, run: str) -> EngineResult | EngineFailure:
        return self.submit(engine, case, base, run) or self.result(engine, run)


async def _in_time(work: Coroutine[Any, Any, T], seconds: float) -> T:
    task = spawn(work)
    if await asyncio.wait({task}, timeout=seconds) == (set(), {task}):
        stacks = "\n".join(map(_stack, asyncio.all_tasks() - {asyncio.current_task()}))
        task.cancel()
        raise TimeoutError(f"no result in {seconds:g} s; the tasks of the loop:\n{stacks}")
    return task.result()


def _stack(task: asyncio.Task[Any]) -> str:
    """The task's name and a line for each coroutine that it is in; `Task.get_stack` returns the outermost alone."""
    lines, coroutine = [task.get_name()], cast(Any, task.get_coro())
    while (frame := getattr(coroutine, "cr_frame", None)) is not None:
        lines.append(f"  {frame.f_code.co_qualname} {frame.f_code.co_filename}:{frame.f_lineno}")
        coroutine = coroutine.cr_await
    return "\n".join(lines)


async def _start(executor: LocalExecutor, entered: Callable[[], AbstractContextManager[None]]) -> None:
    with entered():
        await executor.start()
