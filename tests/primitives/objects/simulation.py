"""Keepers, clients, a store and a network in one process, on a simulated clock, driven by a seed.

Messages are delayed, reordered, doubled and lost. Keepers are killed, or stand still while their messages gather. Links
are cut. Operations of the store take time, and operations of a killed keeper may still take place. Clients repeat a
call until it is answered.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from primitives.objects.linearizability import NOTHING, Operation

from treadle.primitives.errors import MissingError
from treadle.primitives.objects import messages as m
from treadle.primitives.objects.instructions import (
    Append,
    Instruction,
    Load,
    Look,
    Propose,
    ShardLimits,
    ShardTiming,
    ToConnection,
    ToPeer,
)
from treadle.primitives.objects.shard import Shard
from treadle.primitives.objects.shard_log import LogFenced, ShardLog
from treadle.primitives.objects.state import unpacked
from treadle.primitives.objects.values import dumps, loads
from treadle.primitives.objects.views import ViewChain
from treadle.primitives.stores.store import ObjectInfo, Store, Stream

TIMING = ShardTiming(beat=0.1, patience=0.8, lease=0.8, session=30.0)
LIMITS = ShardLimits(digest=20, log_entries=15)
STORE = "store"
"""The other end of a keeper's link to the store."""
KEY = b"k" * 32


class DictStore(Store):
    """A store in memory."""

    def __init__(self) -> None:
        self.url = "memory://simulated"
        self.objects: dict[str, bytes] = {}

    def put(self, name: str, data: Stream) -> None:
        assert isinstance(data, bytes)
        self.objects[name] = data

    def create(self, name: str, data: Stream) -> bool:
        assert isinstance(data, bytes)
        return self.objects.setdefault(name, data) is data

    def get(self, name: str) -> bytes:
        if name not in self.objects:
            raise MissingError(name)
        return self.objects[name]

    def get_range(self, name: str, start: int, length: int) -> bytes:
        return self.get(name)[start : start + length]

    def head(self, name: str) -> ObjectInfo | None:
        return ObjectInfo(name, len(self.objects[name]), "", 0) if name in self.objects else None

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        return iter([ObjectInfo(name, 0, "", 0) for name in sorted(self.objects) if name.startswith(f"{prefix}/")])

    def delete(self, names: Any) -> None:
        for name in list(names):
            self.objects.pop(name, None)

    def delete_prefix(self, prefix: str) -> None:
        self.delete(info.name for info in self.list(prefix))


@dataclass
class Keeper:
    """A keeper process. Its clock differs from the simulation's by `skew`."""

    name: str
    shard: Shard
    skew: float
    alive: bool = True
    paused_until: float = 0.0
    waiting: list[Callable[[], None]] = field(default_factory=list)
    """What arrived while it stood still."""
    logs: dict[int, ShardLog] = field(default_factory=dict)
    """By epoch: an operation of an earlier epoch may be late."""
    timer: float | None = None


@dataclass
class Client:
    """A client with one session and one call at a time."""

    number: int
    choose: Callable[[random.Random], tuple[str, str, tuple[Any, ...], float | None] | None]
    view: m.ShardView = field(default_factory=m.ShardView)
    session: int = 0
    sequence: int = 0
    message: m.FromClient | None = None
    operation: Operation | None = None
    done: bool = False
    loyal: bool = False
    """It stays with a primary as long as that answers, and calls often."""
    nonce: int = 0


class World:
    """One shard on several keepers. `shard`: the class under test, for mutations."""

    def __init__(
        self,
        seed: int,
        *,
        keepers: int = 3,
        copies: int = 2,
        durability: Literal["memory", "store"] = "memory",
        shard: type[Shard] = Shard,
        lossy: bool = True,
    ) -> None:
        self.random = random.Random(seed)
        self.now = 1000.0
        self._events: list[tuple[float, int, Callable[[], object]]] = []
        self._count = itertools.count()
        self.store = DictStore()
        self.views = ViewChain(self.store, KEY, "objects", 0)
        self.keepers: dict[str, Keeper] = {}
        self.clients: list[Client] = []
        self.cuts: dict[tuple[str, str], float] = {}
        self.history: list[Operation] = []
        self.calm = not lossy
        self.errors: list[str] = []
        self._chain_operations = 0
        self._copies, self._durability, self._class = copies, durability, shard
        names = [self.start_keeper().name for _ in range(keepers)]
        backups = tuple(names[1:copies]) if durability == "memory" else ()
        self.views.create(m.ShardView(1, names[0], backups, 1))
        for name in names:
            self._tick(self.keepers[name])

    # -- time

    def after(self, delay: float, event: Callable[[], object]) -> None:
        heapq.heappush(self._events, (self.now + delay, next(self._count), event))

    def run(self, until: float) -> None:
        while self._events and self._events[0][0] <= until:
            self.now, _, event = heapq.heappop(self._events)
            event()
        self.now = max(self.now, until)

    def _delay(self) -> float:
        return self.random.choice((0.0005, 0.001, 0.003)) if self.calm else self.random.expovariate(1 / 0.01)

    # -- keepers

    def start_keeper(self) -> Keeper:
        skew = self.random.uniform(-500, 500)
        number = len(self.keepers)  # each keeper is on a host of its own, so that a later one may have to lead
        name = f"tls://10.0.{self.random.randrange(256)}.{number}:1#k{number}"
        shard = self._class(
            0, name, copies=self._copies if self._durability == "memory" else 1, durability=self._durability,
            timing=TIMING, limits=LIMITS, wall=-skew,
        )  # fmt: skip
        keeper = self.keepers[name] = Keeper(name, shard, skew)
        if len(self.keepers) > 1 and self.store.objects:
            self._tick(keeper)
        return keeper

    def kill(self, name: str) -> None:
        self.keepers[name].alive = False

    def pause(self, name: str, seconds: float) -> None:
        keeper = self.keepers[name]
        keeper.paused_until = max(keeper.paused_until, self.now + seconds)
        self.after(keeper.paused_until - self.now, lambda: self._resume(keeper))

    def _resume(self, keeper: Keeper) -> None:
        if self.now >= keeper.paused_until:
            waiting, keeper.waiting = keeper.waiting, []
            for one in waiting:
                one()

    def rumour(self, name: str) -> None:
        """Tell all other keepers that this one has ended, true or not."""
        for keeper in self.keepers.values():
            if keeper.name != name:
                self._do(keeper, lambda now, to=keeper: to.shard.lost(name, now))  # type: ignore[misc]

    def synced(self) -> list[str]:
        """Live members of the newest view that hold the state of its epoch; none while a keeper uses the chain.

        A view that is on its way may leave out a member that holds the state: it counts as failed.
        """
        if self._chain_operations:
            return []
        view = self.views.newest()
        shards = [self.keepers[name].shard for name in view.members if self.keepers[name].alive]
        return [one.keeper for one in shards if one.view.epoch == view.epoch and one.role in ("primary", "backup")]

    def take_over(self, name: str) -> None:
        """The supervisor makes a keeper the primary, of a new incarnation unless the state is in the log."""
        view = self.views.newest()
        incarnation = view.incarnation + (self._durability == "memory")
        self.views.create(m.ShardView(view.epoch + 1, name, (), incarnation))
        self._do(self.keepers[name], lambda now: [Look(0)])

    def _do(self, keeper: Keeper, action: Callable[[float], list[Instruction]]) -> None:
        """Give an event to a keeper that is not dead, once it does not stand still."""
        if not keeper.alive:
            return
        if keeper.paused_until > self.now:
            keeper.waiting.append(lambda: self._do(keeper, action))
            return
        self._perform(keeper, action(self.now + keeper.skew))
        self._perform(keeper, keeper.shard.tick(self.now + keeper.skew))
        self._set_timer(keeper)

    def _tick(self, keeper: Keeper) -> None:
        self._do(keeper, lambda now: [])

    def _set_timer(self, keeper: Keeper) -> None:
        due = keeper.shard.wakes_at()
        if due is None:
            return
        due = max(due - keeper.skew, self.now + 0.0001)
        if keeper.timer is not None and self.now < keeper.timer <= due:
            return
        keeper.timer = due
        self.after(due - self.now, lambda: self._tick(keeper))

    def _perform(self, keeper: Keeper, instructions: list[Instruction]) -> None:
        for instruction in list(instructions):
            match instruction:
                case ToConnection(connection, message):
                    self._send(keeper.name, f"c{connection}", lambda c=connection, a=message: self._answered(c, a))  # type: ignore[misc]
                case ToPeer(other, message):
                    if other in self.keepers:
                        self._to_keeper(keeper.name, other, message)
                case Propose(view):
                    self._chain(keeper, lambda v=view: self.views.create(v))  # type: ignore[misc]
                case Look():
                    self._chain(keeper, lambda: None)
                case Append():
                    self._reach_store(keeper, lambda a=instruction: self._append(keeper, a))  # type: ignore[misc]
                case Load(view):
                    self._reach_store(keeper, lambda v=view: self._load(keeper, v))  # type: ignore[misc]

    def _to_keeper(self, sender: str, other: str, message: m.Between) -> None:
        target = self.keepers[other]
        self._send(sender, other, lambda: self._do(target, lambda now: target.shard.from_peer(sender, message, now)))

    def _chain(self, keeper: Keeper, write: Callable[[], Any]) -> None:
        def operate() -> None:
            self._chain_operations -= 1
            write()  # also when the keeper has been killed meanwhile
            view = self.views.newest()
            self.after(self._delay(), lambda: self._do(keeper, lambda now: keeper.shard.learned(view, now)))

        self._chain_operations += 1
        self._reach_store(keeper, operate)

    def _reach_store(self, keeper: Keeper, operate: Callable[[], None]) -> None:
        """Run an operation of the store, once the keeper's link to it is not cut."""
        self.after(self._delay() + max(0.0, self.cuts.get((keeper.name, STORE), 0) - self.now), operate)

    def _append(self, keeper: Keeper, append: Append) -> None:
        log, started, epoch = keeper.logs[append.epoch], self.now + keeper.skew, append.epoch
        try:
            log.append(append.entries)
            if append.state:
                log.snapshot(append.state)
        except LogFenced:
            self.after(self._delay(), lambda: self._do(keeper, lambda now: keeper.shard.fenced(epoch, now)))
            return
        index = append.first - 1 + len(append.entries)
        self.after(self._delay(), lambda: self._do(keeper, lambda now: keeper.shard.stored(epoch, index, started, now)))

    def _load(self, keeper: Keeper, view: m.ShardView) -> None:
        log = keeper.logs[view.epoch] = ShardLog(self.store, KEY, "objects", 0, keeper.name, view.epoch)
        try:
            state = log.load(view.incarnation)
        except LogFenced:
            self.after(self._delay(), lambda: self._do(keeper, lambda now: keeper.shard.fenced(view.epoch, now)))
            return
        self.after(self._delay(), lambda: self._do(keeper, lambda now: keeper.shard.loaded(state, view.epoch, now)))

    # -- network

    def cut(self, one: str, other: str, seconds: float) -> None:
        self.cuts[one, other] = self.now + seconds

    def _send(self, sender: str, target: str, deliver: Callable[[], None]) -> None:
        for _ in range(2 if not self.calm and self.random.random() < 0.05 else 1):
            lost = not self.calm and self.random.random() < 0.03
            if not lost and self.cuts.get((sender, target), 0) <= self.now:
                late = self.random.uniform(0, 3) if not self.calm and self.random.random() < 0.02 else 0.0
                self.after(self._delay() + late, deliver)

    # -- clients

    def client(
        self, choose: Callable[[random.Random], tuple[str, str, tuple[Any, ...], float | None] | None]
    ) -> Client:
        """`choose` returns the next call (object, method, arguments, timeout), or None at the end."""
        client = Client(len(self.clients), choose, loyal=not self.clients)
        self.clients.append(client)
        self.after(self._delay(), lambda: self._next(client))
        return client

    def _next(self, client: Client) -> None:
        if not client.session:
            client.nonce = self.random.getrandbits(32)
            self._begin(client, m.OpenSession(0, client.nonce))
            return
        call = client.choose(self.random)
        if call is None:
            client.done = True
            return
        name, method, arguments, timeout = call
        client.sequence += 1
        packed = dumps(arguments) if method == m.CREATE else dumps((arguments, {})) if arguments else b""
        if method != m.CREATE:
            client.operation = Operation(name, method, arguments, self.now, client.number)
            self.history.append(client.operation)
        self._begin(client, m.MethodCall(0, client.session, client.sequence, name, method, packed, timeout))

    def _begin(self, client: Client, message: m.FromClient) -> None:
        client.message = message
        self._resend(client, message)

    def _resend(self, client: Client, message: m.FromClient, *, again: bool = False) -> None:
        """Send the message to the newest primary, until it is answered. A loyal client looks once it waits."""
        if client.message is not message:
            return
        if again or not client.view.epoch or not client.loyal:
            client.view = self.views.newest()
        if (target := self.keepers.get(client.view.primary)) is not None:
            shard = target.shard
            deliver = lambda: self._do(target, lambda now: shard.from_client(client.number, message, now))  # noqa: E731
            self._send(f"c{client.number}", target.name, deliver)
        self.after(self.random.uniform(0.2, 0.6), lambda: self._resend(client, message, again=True))

    def _answered(self, number: int, message: m.ToClient) -> None:
        client = self.clients[number]
        match client.message, message:
            case m.OpenSession(), m.SessionOpened(_, nonce, session) if nonce == client.nonce:
                client.session, client.sequence, client.message = session, 0, None
                self.after(0.0, lambda: self._next(client))
            case m.MethodCall(_, session, sequence), m.MethodAnswer(of, number, kind, body) if (session, sequence) == (
                of,
                number,
            ):
                self._finish(client, kind, body)

    def _finish(self, client: Client, kind: int, body: bytes) -> None:
        operation, client.operation, client.message = client.operation, None, None
        if kind == m.EXPIRED:
            client.session = 0  # the outcome is unknown: the operation stays open
        elif operation is not None:
            operation.end = self.now
            operation.result = loads(body) if kind == m.VALUE else NOTHING
            if kind not in (m.VALUE, m.LATE):
                self.errors.append(f"{operation}: {kind} {unpacked(body) if kind == m.RAISED else body!r}")
        self.after(self.random.expovariate(9 if client.loyal else 3), lambda: self._next(client))
