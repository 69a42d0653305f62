"""An open session: its calls, its view as an executor, and its end."""

from __future__ import annotations

import asyncio
import sys
from concurrent.futures import Executor
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, Self

from treadle.orchestrator.plan.plan import Policy
from treadle.orchestrator.run_store.call_log import NoMoreCalls
from treadle.orchestrator.run_store.run_files import Submission
from treadle.primitives.addresses import parse
from treadle.primitives.blocks import Blocks
from treadle.primitives.errors import UsageError
from treadle.primitives.stores.shared_memory import HostFolder

from .argument_values import Place
from .call_sending import CallOptions, CallSender
from .connection import ClientConnection
from .futures import CallKey, Future, Futures
from .session_calls import SessionCalls
from .session_link import SessionLink
from .sync_client import wait_for

if TYPE_CHECKING:
    from treadle.orchestrator.run_requests.run_views import State
    from treadle.primitives.objects import Keepers

    from .session_display import SessionDisplay


class Session(SessionCalls):
    """An open session. Use it as a context manager; any number of threads may call it."""

    def __init__(
        self, connection: ClientConnection, run: str, *, detach: bool, show: bool | None = None, reuse: bool = False
    ) -> None:
        """Made by `session` and `attach`."""
        self.id, self._connection, self._detach, self._reuse = run, connection, detach, reuse
        env = connection.environment
        self._files = env.files(run)
        blocks = Blocks(env.store, run, HostFolder(env.home.host_root))
        self._link = SessionLink(self._files, blocks, self.look)
        self._sender = CallSender(self._link, blocks, cache(self._place_of))
        super().__init__(self._sender, self._slots_of, CallOptions(), reuse)
        self._display = self._shown(show)
        self._keepers: list[Keepers] = []

    def __repr__(self) -> str:
        return f"<Session {self.id}>"

    def _shown(self, show: bool | None) -> SessionDisplay | None:
        from .session_display import SessionDisplay, TerminalView, find_view

        view = None if show is False else find_view() or (TerminalView() if show else None)
        return SessionDisplay(self._files, self._link.counts, view) if view else None

    def with_options(
        self,
        *,
        executor: str = "",
        retries: int = 0,
        timeout: float = 0.0,
        memory: int = 0,
        max_concurrency: int = 0,
        reuse: bool | None = None,
    ) -> SessionCalls:
        """Calls with other settings.

        - `executor`: the place of the calls; default: that of the session.
        - `retries`: further attempts after an exception. Lost workers are replaced in any case.
        - `timeout`: seconds that a task may take; 0: no limit.
        - `memory`: bytes that a task may allocate; 0: the slot's limit.
        - `max_concurrency`: tasks of one function that run at the same time; 0: no limit but the slots.
        - `reuse`: take the results of an equal call of this session, if there is one; default: that of the session.

        Raises UsageError for settings that the executor cannot meet.
        """
        options = CallOptions(executor, retries, timeout, memory, max_concurrency)
        if options != CallOptions():
            self._check(Policy(executor=executor or self._executor, timeout=timeout, memory_start=memory))
        return SessionCalls(self._sender, self._slots_of, options, self._reuse if reuse is None else reuse)

    def _place_of(self, executor: str) -> Place:
        """Where large values for the calls of an executor go: its workers on this host map them."""
        env = self._connection.environment
        shared = env.profile.embedded and env.capabilities(executor or self._executor).shares_host
        return "host" if shared else "store"

    def _slots_of(self, executor: str) -> int:
        """The slots of an executor. Empty: that of the session."""
        return self._connection.environment.capabilities(executor or self._executor).slots

    @property
    def _executor(self) -> str:
        """Of calls that name none."""
        return self._files.load(Submission, "spec").executor

    def _check(self, policy: Policy) -> None:
        from treadle.orchestrator.planner import placement

        placement.check_place(self._connection.environment.plan_site(), policy, ("calls",))

    def executor(self, max_workers: int | None = None) -> Executor:
        """The session as a `concurrent.futures.Executor`, for libraries that take one.

        `max_workers`: calls of one function that run at the same time; None: no limit but the slots. Raises ValueError
        below 1.
        """
        from .session_executor import SessionExecutor

        if max_workers is not None and max_workers < 1:
            raise ValueError("max_workers must be greater than 0")
        return SessionExecutor(self.with_options(max_concurrency=max_workers or 0).submit)

    def keepers(
        self,
        *,
        replicas: int = 1,
        durability: Literal["memory", "store"] = "memory",
        keepers: int = 0,
        shards: int = 1,
        session: float = 30.0,
        host: str = "",
    ) -> Keepers:
        """Start keepers of shared objects for the calls of this session, wherever they run. They end with this process,
        or when it lets go of the session.

        The settings have the same meaning for `Keepers`. The key is derived from the key of the session's run, and the
        views are in the folder of the run. With `durability="store"` the objects are there again after `attach`.

        - `host`: address of this machine that the workers reach; default: that of `peers` in the profile, if it is set.

        Raises UsageError for settings that contradict each other, and without `host` for an executor whose workers run
        elsewhere.
        """
        from treadle.primitives import run_keys
        from treadle.primitives.objects import Keepers

        env = self._connection.environment
        host = host or (parse(peers).host if (peers := env.profile.peers) else "")
        if not host and not env.capabilities(self._executor).shares_host:
            text = f"calls of executor {self._executor!r} run on other machines, and would not reach keepers here"
            raise UsageError(text, "Name an address of this machine that they reach: keepers(host=...).")
        run_keys.hold(self.id, self._files.key)
        found = Keepers(
            env.home.path / "tls", replicas=replicas, durability=durability, keepers=keepers, shards=shards,
            session=session, host=host, store=env.store.url, run=self.id,
        )  # fmt: skip
        self._keepers.append(found)
        return found

    # -- looking

    def futures(self) -> list[Future | Futures]:
        """The calls of the session so far, of all clients, in order: a Future for `submit`, Futures for a map."""
        found: list[Future | Futures] = []
        for called in self._link.calls():
            if called.gives == "futures":
                found.append(Futures(self._link, called.key, called.calls, called.chunk))
            elif called.gives == "future":
                found.append(self._link.future(CallKey(called.key)))
        return found

    def __getitem__(self, id: str) -> Future:
        """The future of a call by its id. Raises KeyError for an unknown one."""
        segment, _, rest = id.partition("/")
        partition, _, position = rest.partition("/")
        call = self._link.key_of(segment, int(partition))
        return self._link.future(CallKey(call.key, call.partition, int(position or 0)))

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
                text = f"attach({self.id!r}) finds them again, and `treadle cancel {self.id}` stops them"
                sys.stderr.write(f"the calls of session {self.id} go on: {text}\n")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: Any) -> None:
        await asyncio.to_thread(self.__exit__, *error)

    def end(self, *, wait: bool = True) -> None:
        """Take no more calls, from no client. The accepted calls go on; their results stay until `treadle gc`.

        `wait`: until all calls of this client have ended.
        """
        if self._link.closed:
            return
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
        for keepers in self._keepers:
            keepers.close()
        if self._display:
            self._display.close(ended=ended)
        self._connection.close()

    def cancel(self) -> None:
        """Stop the session's run: no further call begins, and running ones are killed."""
        wait_for(self._cancelled())

    async def _cancelled(self) -> None:
        await (await self._connection.runs()).cancel(self.id)
