"""A keeper: sockets, clocks and store operations around the shards of one process."""

from __future__ import annotations

import asyncio
import itertools
import logging
import secrets
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from ..asyncio_tasks import spawn
from ..coordinator.server import HANDSHAKE_SECONDS as HANDSHAKE_SECONDS
from ..errors import StoreError, TreadleError
from ..stores.store import Store
from ..wire.acceptor import AcceptedConnection, Acceptor
from ..wire.connect import address_of, listen
from ..wire.handshake import Handshake
from ..wire.message_codec import decoder, encode_head
from ..wire.peer_process import has_ended
from ..wire.server_connection import ServerConnection
from ..wire.unauthenticated import Strangers, allowance
from .instructions import Append, Instruction, Load, Look, Propose, ShardLimits, ShardTiming, ToConnection, ToPeer
from .messages import EndSession, FromClient, Introduction, KeepSession, MethodCall, ShardView, ToKeeper, nearby_of
from .peer_links import MESSAGE_BYTES, UNREAD_BYTES, PeerLinks
from .shard import Shard
from .shard_log import LogFenced, ShardLog
from .views import ViewChain

if TYPE_CHECKING:
    from ..wire.tls import Identity

T = TypeVar("T")
_AGAIN = 0.2
"""Seconds after an error of the store until the operation is repeated."""
_DYING = 1.0
"""A process closes its connections before it has ended; seconds until it is looked at for the last time."""
_HAND_OVER, _POLL, _SOON = 5.0, 0.01, 0.001
_WITH_SESSION = MethodCall, KeepSession
_log = logging.getLogger(__name__)
_decode: Callable[[bytes, str], ToKeeper] = decoder(ToKeeper)


class Keeper:
    """Serves the shards 0 to `shards` - 1 to all holders of the key. For one event loop.

    `copies`: keepers that hold each shard. `folder`: the part of the store that holds views and logs. `tls`: for an
    address with `tls://`.
    """

    def __init__(
        self,
        store: Store,
        key: bytes,
        *,
        folder: str = "objects",
        shards: int = 1,
        copies: int = 1,
        durability: Literal["memory", "store"] = "memory",
        address: str = "unix:",
        tls: Identity | None = None,
        timing: ShardTiming | None = None,
        limits: ShardLimits | None = None,
    ) -> None:
        self._store, self._key, self._folder = store, key, folder
        self._count, self._address, self._tls = shards, address, tls
        self._settings: dict[str, Any] = {
            "copies": copies,
            "durability": durability,
            "timing": timing,
            "limits": limits,
        }
        self.name = ""
        """After `start`: the address, `#`, and a nonce."""
        self.shards: list[Shard] = []
        self._views = [ViewChain(store, key, folder, shard) for shard in range(shards)]
        self._logs: dict[tuple[int, int], ShardLog] = {}
        """By shard and epoch: an operation of an earlier epoch may be late."""
        self._pool = ThreadPoolExecutor(max(4, shards), "treadle-keeper-store")
        self._numbers = itertools.count(1)
        self._connections: dict[int, ServerConnection] = {}
        self._peers: dict[int, str] = {}
        """Names of the keepers that introduced themselves, by connection."""
        self._sessions: dict[int, tuple[int, int]] = {}
        """Shard and session of each connection, for the case that its process dies."""
        self._inbox: list[tuple[int, Any]] = []
        """Messages that no shard has got, by connection."""
        self._due: set[int] = set()
        self._timers: dict[int, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._acceptors: list[Acceptor] = []

    async def start(self) -> None:
        """Listen, and read the views. Raises WireError when the address is in use."""
        self._loop = asyncio.get_running_loop()
        sock = listen(self._address)
        self.name = f"{address_of(sock, tls=self._tls is not None)}#{secrets.token_hex(8)}"
        wall = time.time() - time.monotonic()
        self.shards = [Shard(number, self.name, wall=wall, **self._settings) for number in range(self._count)]
        self._links = PeerLinks(self._key, encode_head(Introduction(self.name)), self._peer_lost)
        self._listen(sock, self._tls)
        if nearby := nearby_of(self.name):
            self._listen(listen(nearby), None)
        for shard in self.shards:
            self._later(shard.number)

    def _listen(self, sock: socket.socket, tls: Identity | None) -> None:
        strangers: Strangers[AcceptedConnection] = Strangers(allowance(), HANDSHAKE_SECONDS)
        accept = partial(self._accept, tls.digest if tls is not None else b"")
        context = tls.context() if tls is not None else None
        self._acceptors.append(Acceptor(sock, f"keeper {self.name}", strangers, accept, tls=context))

    async def hand_over(self) -> None:
        """Wait for a short time until backups that have just joined have the state."""
        until = time.monotonic() + _HAND_OVER
        while time.monotonic() < until and not all(one.is_followed for one in self.shards):  # noqa: ASYNC110 - rare
            await asyncio.sleep(_POLL)

    async def stop(self) -> None:
        """Close all connections. May be called twice."""
        acceptors, self._acceptors = self._acceptors, []
        if not acceptors:
            return
        for acceptor in acceptors:
            acceptor.close()
        self._links.close()
        for timer in self._timers.values():
            timer.cancel()
        for task in list(self._tasks):
            task.cancel()
        for connection in list(self._connections.values()):
            connection.abort()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._pool.shutdown(wait=False)

    async def __aenter__(self) -> Keeper:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    # -- connections

    def _accept(self, certificate: bytes, caller: AcceptedConnection) -> ServerConnection:
        handshake = Handshake.server(lambda keeper: self._key if keeper == self.name else None, certificate)
        number = next(self._numbers)
        return ServerConnection(self, handshake, number, caller, message_bytes=MESSAGE_BYTES, unread_bytes=UNREAD_BYTES)

    def began(self, connection: ServerConnection) -> None:
        if not self._acceptors:
            connection.abort()

    def admitted(self, connection: ServerConnection) -> None:
        self._connections[connection.number] = connection

    def arrived(self, connection: ServerConnection, heads: list[bytes]) -> None:
        for head in heads:
            message = _decode(head, connection.address)
            if isinstance(message, Introduction):
                self._peers[connection.number] = message.keeper
            elif message.shard < 0 or message.shard >= len(self.shards):
                raise TreadleError(f"there is no shard {message.shard}")
            else:
                if isinstance(message, _WITH_SESSION):
                    self._sessions[connection.number] = message.shard, message.session
                self._inbox.append((connection.number, message))
                self._later(message.shard)

    def _give(self, connection: int, message: Any) -> None:
        now, shard = time.monotonic(), self.shards[message.shard]
        if isinstance(message, FromClient):
            self._perform(shard, shard.from_client(connection, message, now))
        elif (peer := self._peers.get(connection)) is not None:
            self._perform(shard, shard.from_peer(peer, message, now))

    def ended(self, connection: ServerConnection, why: Exception | None) -> None:
        self._connections.pop(connection.number, None)
        self._peers.pop(connection.number, None)
        last = self._sessions.pop(connection.number, None)
        if last is not None and connection.process and self._acceptors:
            self._look_for(connection.process, EndSession(*last), 0.0)
        if why is not None:
            _log.debug("the connection of %s has ended: %s", connection.address, why)

    def _look_for(self, process: int, last: EndSession, pause: float) -> None:
        """End the session of a lost connection if its process is dead. A process that lives may return."""
        if has_ended(process):
            self._give(0, last)
            self._later(last.shard)
        elif pause < _DYING:
            pause = 2 * pause + 0.01
            self._loop.call_later(pause, self._look_for, process, last, pause)

    def _peer_lost(self, keeper: str) -> None:
        for shard in self.shards:
            self._perform(shard, shard.lost(keeper, time.monotonic()))
            self._later(shard.number)

    # -- batches

    def _later(self, shard: int) -> None:
        """Give the shard its messages, and let it tick, after all that can be read now: a process that ended before a
        message was sent gets nothing of it."""
        if not self._due:
            self._loop.call_soon(self._turn)
        self._due.add(shard)

    def _turn(self) -> None:
        if not self._acceptors:
            return
        inbox, self._inbox = self._inbox, []
        for connection, message in inbox:  # the lease is checked against this time or a later one
            self._give(connection, message)
        due, self._due = self._due, set()
        for number in due:
            shard = self.shards[number]
            self._perform(shard, shard.tick(time.monotonic()))
            if (wake := shard.wakes_at()) is not None:
                self._wake(number, wake)

    def _wake(self, shard: int, at: float) -> None:
        """Let the shard tick at this time. A timer that is earlier stays: to renew it for each message takes longer."""
        timer = self._timers.get(shard)
        if timer is not None and timer.when() > at:
            timer.cancel()
            timer = None
        if timer is None:
            self._timers[shard] = self._loop.call_at(max(at, time.monotonic() + _SOON), self._tick, shard)

    def _tick(self, shard: int) -> None:
        del self._timers[shard]
        self._later(shard)

    def _perform(self, shard: Shard, instructions: list[Instruction]) -> None:
        if not instructions:
            return
        heads: dict[int, list[bytes]] = {}
        between: dict[str, list[bytes]] = {}
        for instruction in instructions:
            match instruction:
                case ToConnection(connection, message):
                    heads.setdefault(connection, []).append(encode_head(message))
                case ToPeer(keeper, message):
                    between.setdefault(keeper, []).append(encode_head(message))
                case Propose(view):
                    self._begin(self._use_chain(shard, view))
                case Look():
                    self._begin(self._use_chain(shard, None))
                case Append():
                    self._begin(self._append(shard, instruction))
                case Load(view):
                    self._begin(self._load(shard, view))
        for number, batch in heads.items():
            if (found := self._connections.get(number)) is not None:
                found.write(batch)
        for keeper, batch in between.items():
            self._links.send(keeper, batch)

    # -- the store

    def _begin(self, work: Any) -> None:
        task = spawn(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _in_store(self, operation: Callable[[], T]) -> T:
        """Run an operation of the store in a thread, until it succeeds. Every operation may be repeated."""
        while True:
            try:
                return await self._loop.run_in_executor(self._pool, operation)
            except StoreError as error:
                _log.warning("keeper %s: %s", self.name, error)
                await asyncio.sleep(_AGAIN)

    async def _use_chain(self, shard: Shard, view: ShardView | None) -> None:
        chain, known = self._views[shard.number], shard.view

        def operate() -> ShardView:
            if view is not None:
                chain.create(view)
            return chain.newest(known if known.epoch else None)

        newest = await self._in_store(operate)
        self._perform(shard, shard.learned(newest, time.monotonic()))
        self._later(shard.number)

    async def _append(self, shard: Shard, append: Append) -> None:
        log, started = self._logs[shard.number, append.epoch], time.monotonic()
        try:
            await self._in_store(lambda: log.append(append.entries))
        except LogFenced:
            self._perform(shard, shard.fenced(append.epoch, time.monotonic()))
        else:
            if append.state:
                await self._in_store(lambda: log.snapshot(append.state))
            index = append.first - 1 + len(append.entries)
            self._perform(shard, shard.stored(append.epoch, index, started, time.monotonic()))
        self._later(shard.number)

    async def _load(self, shard: Shard, view: ShardView) -> None:
        log = ShardLog(self._store, self._key, self._folder, shard.number, self.name, view.epoch)
        self._logs = {place: one for place, one in self._logs.items() if place[0] != shard.number}
        self._logs[shard.number, view.epoch] = log
        try:
            state = await self._in_store(lambda: log.load(view.incarnation))
        except LogFenced:
            self._perform(shard, shard.fenced(view.epoch, time.monotonic()))
        except Exception:  # noqa: BLE001 - classes of users are unpickled
            _log.exception("keeper %s cannot restore the state of shard %s", self.name, shard.number)
        else:
            self._perform(shard, shard.loaded(state, view.epoch, time.monotonic()))
        self._later(shard.number)
