"""One shard at one keeper: replication, views and leases. Pure: events in, instructions out; the clock is passed in.

A **view** of epoch n is the n-th object of a chain in the store: a primary and backups. The primary gives each call an
entry, applies it, and sends it to the **followers**: the backups, or the log in the store. A call is answered when all
followers have the entry, a read when all followers have the entries before it and the lease holds.

    role      event                              next      effect
    outside   view: primary, new incarnation     primary   an empty state
    outside   view: primary, state in the log    loading   `Load`
    loading   the state is loaded                primary   it answers after a lease, which an earlier primary may hold
    outside   view: backup                       joining   none: the primary sends the state
    outside   tick                               outside   `JoinView` to the primary of the newest known view; `Look`
    joining   the state of its epoch             backup    it acknowledges
    backup    the next entries of its epoch      backup    it applies and acknowledges them
    backup    silence of the primary             backup    it proposes itself as primary of the next epoch
    backup    next view: same primary, backup    backup    none
    backup    next view: primary                 primary   sends its state to backups; answers after the lease it gave
    primary   silence of a backup                primary   proposes the next view without it
    primary   `JoinView`                             primary   proposes the next view with the sender, if it has room
    primary   another member should lead         primary   when it has all entries: proposes it, takes no call
    primary   next view: the proposed member     backup    none: its state is equal
    primary   next view: primary                 primary   sends its state to backups that have none
    primary   the log holds a later epoch        outside   as for a view without it
    any       any other later view               joining, outside   forgets its state; clients get `NotPrimary`
    any       message of a later epoch           -         `Look`
    any       message of an earlier epoch        -         `Stale` to its sender
"""

from __future__ import annotations

from typing import Literal

import msgspec

from ..coordinator.component import Deadlines
from . import messages as m
from .comparison import ReplicaComparison
from .followers import NEVER, Followers, StatePieces
from .instructions import Instruction, Load, Look, Propose, ShardLimits, ShardTiming, ToConnection, ToPeer
from .replies import CallLimits, Replies
from .state import SESSION_BITS, State
from .views import spread

_decode = msgspec.msgpack.Decoder(m.Entry).decode
Role = Literal["outside", "loading", "joining", "backup", "primary"]


class Shard:
    """A keeper's part in one shard. `copies`: members of a full view. `store`: a log in the store is the follower.

    `wall`: seconds since 1970 minus the clock that is passed in.
    """

    def __init__(
        self,
        number: int,
        keeper: str,
        *,
        copies: int = 1,
        durability: Literal["memory", "store"] = "memory",
        timing: ShardTiming | None = None,
        limits: ShardLimits | None = None,
        wall: float = 0.0,
    ) -> None:
        self.number, self.keeper, self._copies, self._durability = number, keeper, copies, durability
        self._timing, self._limits, self._wall = timing or ShardTiming(), limits or ShardLimits(), wall
        self.view = self._better = m.ShardView()
        self.role: Role = "outside"
        self._resigned: m.ShardView | None = None
        """The next view, which this primary has proposed with another primary: it takes no more calls."""
        self.diverged: dict[str, None] = {}
        """Objects whose replicas were unequal: their classes are not deterministic."""
        self._now = self._ticked = self._asked = self._heard = self._granted = NEVER
        """`_granted`: the end of the lease that this keeper gave as a backup."""
        self._out: list[Instruction] = []
        self._forget()

    def _forget(self) -> None:
        """Forget all that belongs to a state."""
        self.state: State | None = None
        self.committed = 0
        """The number of the last entry that all followers have."""
        self._followers = Followers(self.number, self._timing, self._limits)
        self._replies, self._call_limits = Replies(), CallLimits(self._limits)
        self._leases: Deadlines[int] = Deadlines(self._timing.session)
        self._serves_from = NEVER
        self._pieces = StatePieces()
        self._comparison = ReplicaComparison()

    # -- queries

    def wakes_at(self) -> float | None:
        """Return the time at which `tick` is needed next; None: not before another event."""
        if self.role != "primary" or self.state is None:
            return self._ticked + self._timing.beat
        alarm = self.state.next_alarm()
        beat = self._ticked + self._timing.beat if self.view.backups else None
        serves = self._serves_from if self._serves_from > self._now and self._replies.waiting else None
        times = [self._leases.wakes_at(), None if alarm is None else alarm - self._wall, beat, serves]
        return min((time for time in times if time is not None), default=None)

    @property
    def is_followed(self) -> bool:
        """Return whether all backups have the state, so that this keeper may end."""
        return self._followers.are_ready

    # -- events

    def learned(self, view: m.ShardView, now: float) -> list[Instruction]:
        """The newest view of the chain."""
        self._begin(now)
        self._asked = NEVER
        if view.epoch > self.view.epoch:
            self._take_view(view)
        return self._out

    def from_client(self, connection: int, message: m.FromClient, now: float) -> list[Instruction]:
        """A message of a client. Follow a batch of messages with `tick`."""
        self._begin(now)
        if self.role != "primary" or self.state is None or self._resigned:
            self._out.append(ToConnection(connection, m.NotPrimary(self.number, self.view.epoch)))
            return self._out
        match message:
            case m.MethodCall():
                self._call(connection, message, self.state)
            case m.OpenSession(_, nonce):
                self._open(connection, nonce, self.state)
            case m.KeepSession(_, session, sequence):
                self._keep(connection, session, sequence, self.state)
            case m.EndSession(_, session) if session in self.state.sessions:
                self._leases.cancel(session)
                self._enter(m.EndedEntry(self._time(), session))
                self._replies.routes.pop(session, None)
        return self._out

    def from_peer(self, keeper: str, message: m.Between, now: float) -> list[Instruction]:
        """A message of another keeper. Follow a batch of messages with `tick`."""
        self._begin(now)
        if message.epoch > self.view.epoch:
            self._look()
        elif isinstance(message, m.JoinView):
            if self.role == "primary" and self.view.has_room_for(keeper, self._copies):
                self._propose(self.keeper, (*self.view.backups, keeper))
        elif message.epoch < self.view.epoch:  # also an Acknowledge: its sender may have lost the state since
            self._out.append(ToPeer(keeper, m.Stale(self.number, self.view.epoch)))
        elif isinstance(message, m.Acknowledge):
            self._acknowledged(keeper, message)
        elif keeper == self.view.primary:
            self._heard = self._now
            self._follow(message)
        return self._out

    def lost(self, keeper: str, now: float) -> list[Instruction]:
        """The keeper has probably ended. It does no harm if it has not: only the chain changes views."""
        self._begin(now)
        if (follower := self._followers.members.get(keeper)) is not None:
            follower.heard = NEVER
        elif keeper == self.view.primary:
            self._heard = NEVER
        return self._out

    def stored(self, epoch: int, index: int, started: float, now: float) -> list[Instruction]:
        """The log has all entries up to `index`. It held no later epoch than this one after time `started`."""
        self._begin(now)
        if epoch == self.view.epoch:
            self._followers.stored(index, started)
        return self._out

    def loaded(self, state: State, epoch: int, now: float) -> list[Instruction]:
        """The state of the log, to which the epoch was appended."""
        self._begin(now)
        if self.role == "loading" and epoch == self.view.epoch:
            self.state, self.role = state, "primary"
            self._lead(self._now + self._timing.lease)
            self._followers.begin_log(state.index, self._now)
        return self._out

    def fenced(self, epoch: int, now: float) -> list[Instruction]:
        """The log holds a later epoch than this one."""
        self._begin(now)
        if epoch == self.view.epoch:
            self._leave("outside")
            self._look()
        return self._out

    def tick(self, now: float) -> list[Instruction]:
        """A batch of messages is complete, or time has passed: send entries and answers, and handle deadlines."""
        due = self.wakes_at()
        self._begin(now)
        if due is not None and self._now - due > self._timing.patience / 2:
            self._forgive()
        self._ticked = self._now
        if self.role == "primary" and self.state and not self._resigned:
            self._tick_primary(self.state)
        elif self.role == "backup":
            self._tick_backup()
        elif self.role in ("outside", "joining"):
            self._tick_outside()
        return self._out

    def _begin(self, now: float) -> None:
        self._now = max(self._now, now)
        self._out = []

    def _forgive(self) -> None:
        """This process stood still: messages of that time may be unread."""
        self._heard = self._now if self._heard > NEVER else NEVER
        for follower in self._followers.members.values():
            follower.heard = self._now if follower.heard > NEVER else NEVER
        self._leases.begin_all(self._now)

    def _look(self) -> None:
        self._ask(Look(self.view.epoch))

    def _propose(self, primary: str, backups: tuple[str, ...]) -> None:
        self._ask(Propose(m.ShardView(self.view.epoch + 1, primary, backups, self.view.incarnation)))

    def _ask(self, question: Look | Propose) -> None:
        """Ask the chain one question at a time."""
        if self._now - self._asked >= self._timing.patience:
            self._asked = self._now
            self._out.append(question)

    # -- views

    def _take_view(self, view: m.ShardView) -> None:
        before, self.view, self._better = self.view, view, spread(self.number, view)
        resigned, self._resigned = self._resigned, None
        self._heard = self._now
        follows = view.epoch == before.epoch + 1 and view.incarnation == before.incarnation
        if view.primary == self.keeper:
            self._take_lead(before, follows)
        elif resigned == view:
            self._leave("backup", self.state)
            self._out.append(ToPeer(view.primary, m.Stale(self.number, view.epoch)))  # it looks at the chain
        elif self.keeper not in view.backups:
            self._leave("outside")
        elif not (follows and self.role == "backup" and view.primary == before.primary):
            self._leave("joining")

    def _leave(self, role: Role, state: State | None = None) -> None:
        for connection in set(self._replies.routes.values()):
            self._out.append(ToConnection(connection, m.NotPrimary(self.number, self.view.epoch)))
        self.role = role
        self._forget()
        self.state = state

    def _take_lead(self, before: m.ShardView, follows: bool) -> None:
        if self._durability == "store":
            self._leave("loading")
            self._out.append(Load(self.view))
        elif follows and self.role == "primary":
            self._followers.keep(self.view.backups, self._now)
        elif follows and self.role == "backup":
            self.role = "primary"
            self._lead(self._granted)
        elif self.view.incarnation > before.incarnation:
            self._forget()
            self.role, self.state = "primary", State(self.view.incarnation)
            self._lead(NEVER)
        else:
            self._leave("outside")

    def _lead(self, serves_from: float) -> None:
        assert self.state
        self._serves_from = serves_from
        self._followers.keep(self.view.backups, self._now)
        for session in self.state.sessions:
            self._leases.begin(session, self._now)

    # -- outside, or a backup

    def _tick_outside(self) -> None:
        if self._now - self._heard > self._timing.patience:
            self._look()
        if self.role == "outside" and self._copies > 1 and self.view.primary:
            self._out.append(ToPeer(self.view.primary, m.JoinView(self.number, self.view.epoch)))

    def _tick_backup(self) -> None:
        rank = self.view.backups.index(self.keeper)
        if self._now - self._heard > self._timing.patience * (1 + rank / 2):
            self._propose(self.keeper, tuple(one for one in self.view.backups if one != self.keeper))

    def _follow(self, message: m.Between) -> None:
        """Take entries, or a piece of the state, from the primary of the view, and acknowledge them."""
        digested = None
        if isinstance(message, m.StatePiece):
            self._take_piece(message)
        elif isinstance(message, m.Replicate) and self.role == "backup" and self.state:
            digested = self._take_entries(message, self.state)
        else:
            return
        index = self.state.index if self.state else -1
        if self.state:
            self._granted = self._now + self._timing.lease
        answer = m.Acknowledge(self.number, self.view.epoch, message.sent, index, *(digested or ()))
        self._out.append(ToPeer(self.view.primary, answer))

    def _take_entries(self, message: m.Replicate, state: State) -> tuple[int, bytes] | None:
        """Apply the entries that are new. A gap is filled later, when the primary sends the entries again."""
        digested = None
        if message.first <= state.index + 1:
            for entry in message.entries[state.index + 1 - message.first :]:
                digested = self._apply(_decode(entry), state) or digested
                state.answers.clear()
        return digested

    def _take_piece(self, message: m.StatePiece) -> None:
        if self.role == "joining" and (whole := self._pieces.add(message)):
            self.state, self.role = State.restored(whole), "backup"

    # -- calls

    def _call(self, connection: int, call: m.MethodCall, state: State) -> None:
        known = state.known(call.session, call.sequence)
        if known is False:
            return
        self._replies.routes[call.session] = connection
        self._leases.begin(call.session, self._now)
        if isinstance(known, m.MethodAnswer):  # EXPIRED needs the lease, as a read does
            self._replies.hold_read(state.index, call.session, known)
        elif known is None and state.reads(call.object, call.method):
            self._replies.hold_read(state.index, call.session, state.read(call))
        elif known is None:
            self._enter(self._call_limits.entry(call, state, self._time()))

    def _open(self, connection: int, nonce: int, state: State) -> None:
        if len(state.sessions) >= self._limits.sessions:
            text = f"{len(state.sessions):,} sessions are open, which is the limit"
            self._out.append(ToConnection(connection, m.MethodAnswer(0, nonce, m.REFUSED, text.encode())))
            return
        self._enter(m.BeganEntry(self._time()))
        session = state.incarnation << SESSION_BITS | state.index
        self._replies.routes[session] = connection
        self._leases.begin(session, self._now)
        opened = m.SessionOpened(self.number, nonce, session, self._timing.session, self.view.epoch)
        self._replies.hold(state.index, session, opened)

    def _keep(self, connection: int, session: int, sequence: int, state: State) -> None:
        if session not in state.sessions:
            return
        self._leases.begin(session, self._now)
        self._replies.routes.setdefault(session, connection)
        last = state.sessions[session]
        if isinstance(last, int) and state.waiting[last].sequence < sequence:
            self._enter(m.WithdrawnEntry(self._time(), session))

    def _time(self) -> float:
        assert self.state
        return max(self.state.time, self._now + self._wall)

    # -- the primary

    def _enter(self, entry: m.Entry) -> None:
        """Apply an entry, and keep it for the followers."""
        assert self.state
        if (digested := self._apply(entry, self.state)) is not None:
            self._comparison.note(*digested)
        for answer in self.state.answers:
            self._replies.hold(self.state.index, answer.session, answer)
        self.state.answers.clear()
        self._followers.add(entry)

    def _apply(self, entry: m.Entry, state: State) -> tuple[int, bytes] | None:
        """Apply an entry; returns its number and the digests when the replicas are compared after it."""
        state.apply(entry)
        compared = self._copies > 1 and state.index % self._limits.digest == 0
        return (state.index, state.digests()) if compared else None

    def _acknowledged(self, keeper: str, message: m.Acknowledge) -> None:
        follower = self._followers.acknowledged(keeper, message, self._now)
        if follower is not None and message.digested and self.state:
            unequal = self._comparison.unequal(message.digested, message.digest, self.state)
            self.diverged.update(dict.fromkeys(unequal))
            follower.expelled |= bool(unequal)  # it joins again, and gets the state

    def _tick_primary(self, state: State) -> None:
        for session in self._leases.over(self._now):
            if session in state.sessions:
                self._enter(m.EndedEntry(self._time(), session))
        alarm = state.next_alarm()
        if alarm is not None and alarm <= self._time():
            self._enter(m.PassedEntry(self._time()))
        self._out += self._followers.send(self.view, state, self._now, reads=self._replies.reads)
        if (common := self._followers.common(state)) is not None:
            self.committed = max(self.committed, common)
        if self._now >= self._serves_from:
            self._out += self._replies.release(self.committed, leased=self._now < self._followers.lease())
        if silent := self._followers.silent(self._now):
            self._propose(self.keeper, tuple(name for name in self.view.backups if name not in silent))
        elif self._better != self.view and len(self.view.members) == self._copies:
            self._spread(state)

    def _spread(self, state: State) -> None:
        """Let another member lead, as that spreads the shards over the hosts."""
        settled = self._now - max(self._heard, self._asked) > self._timing.patience
        if settled and self._followers.common(state) == state.index:
            self._resigned = self._better
            self._ask(Propose(self._better))
