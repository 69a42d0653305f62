"""The followers of a primary: backups, or the log in the store. Each gets all entries; the slowest decides.

    follower      event                            effect
    needs state   tick                             the state is sent, and again after half the patience without a piece
    needs state   the state is acknowledged        in step
    in step       tick, entries are unsent         they are sent
    in step       tick, a beat has passed          an empty message is sent, which asks for the lease
    in step       no progress for half the         the entries after the acknowledged one are sent again
                  patience

The log takes one write at a time: entries gather meanwhile.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Iterator

import msgspec

from .instructions import Append, ShardLimits, ShardTiming, ToPeer
from .messages import Acknowledge, Entry, Replicate, ShardView, StatePiece
from .state import State

LOG = ""
"""The name of the follower that is the log."""
NEVER = float("-inf")
_PIECE = 4 << 20
"""Bytes of a piece of a state, and of the entries in a message, unless one is larger."""
_log = logging.getLogger(__name__)
_encode = msgspec.msgpack.Encoder().encode
_USED = 0.8
"""The part of a lease that the primary uses: clocks differ in speed."""


class Follower:
    """Progress of one follower."""

    def __init__(self, now: float, index: int | None = None) -> None:
        self.index = index
        """The last entry that it has; None: it needs the state."""
        self.sent = index or 0
        self.lease = NEVER
        """The end of the lease that it gave."""
        self.heard = self.progress = now
        self.asked = NEVER
        """Time of the last message to it."""
        self.expelled = False
        """Its state is unequal, or cannot be sent."""


class Followers:
    """Entries that a follower may lack, and what each one has."""

    def __init__(self, shard: int, timing: ShardTiming, limits: ShardLimits) -> None:
        self._shard, self._timing, self._limits = shard, timing, limits
        self.members: dict[str, Follower] = {}
        self._entries: deque[bytes] = deque()
        self._unsaved = [0, 0]
        """Entries and bytes of the log after its snapshot."""
        self._writing = False

    def keep(self, names: Iterable[str], now: float) -> None:
        """Set the members. Earlier members keep their progress."""
        self.members = {name: self.members.get(name) or Follower(now) for name in names}

    def begin_log(self, index: int, now: float) -> None:
        """The log is the only follower, and has all entries up to `index`."""
        self.members = {LOG: Follower(now, index)}

    def add(self, entry: Entry) -> None:
        """The next entry, already applied."""
        if self.members:
            self._entries.append(_encode(entry))

    def acknowledged(self, name: str, message: Acknowledge, now: float) -> Follower | None:
        """A backup has answered. Returns it; None: it left the view."""
        if (follower := self.members.get(name)) is None:
            return None
        follower.heard = now
        if message.index < 0:  # it has a piece of the state
            follower.progress = now
        elif follower.index is None or message.index > follower.index:
            follower.index, follower.progress = message.index, now
            follower.sent = max(follower.sent, message.index)
        if message.index >= 0:
            follower.lease = max(follower.lease, message.sent + self._timing.lease * _USED)
        return follower

    def stored(self, index: int, started: float) -> None:
        """The log has entries up to `index`, and held no later epoch after time `started`."""
        self._writing = False
        if (log := self.members.get(LOG)) is not None:
            log.index, log.lease = index, started + self._timing.lease * _USED

    def silent(self, now: float) -> list[str]:
        """Return the backups that have been silent for too long, or are expelled."""
        waits = self._timing.patience
        backups = ((name, one) for name, one in self.members.items() if name != LOG)
        return [name for name, one in backups if one.expelled or now - one.heard > waits]

    def common(self, state: State) -> int | None:
        """Return the last entry that all members have; None: one of them needs the state."""
        have = [one.index for one in self.members.values()]
        return None if None in have else min((one for one in have if one is not None), default=state.index)

    @property
    def are_ready(self) -> bool:
        """Return whether no member needs the state."""
        return all(one.index is not None for one in self.members.values())

    def lease(self) -> float:
        """Return the end of the lease; endless without followers."""
        return min((one.lease for one in self.members.values()), default=float("inf"))

    def send(self, view: ShardView, state: State, now: float, *, reads: bool) -> Iterator[ToPeer | Append]:
        """Yield the messages that are due. `reads`: reads wait for the lease."""
        self._trim(state)
        for name, follower in self.members.items():
            if name == LOG:
                yield from self._write(follower, view, state, reads and follower.lease <= now)
            elif follower.index is None:
                yield from self._send_state(name, follower, view, state, now)
            else:
                yield from self._send_entries(name, follower, view, state, now, reads)

    def _trim(self, state: State) -> None:
        kept = min((one.index or 0 for one in self.members.values()), default=state.index)
        while self._entries and state.index - len(self._entries) < kept:
            self._entries.popleft()

    def _after(self, index: int, state: State) -> tuple[bytes, ...]:
        count = state.index - index
        return tuple(self._entries)[len(self._entries) - count :] if count else ()

    def _stuck(self, follower: Follower, now: float) -> bool:
        return now - follower.progress > self._timing.patience / 2

    def _send_state(
        self, name: str, follower: Follower, view: ShardView, state: State, now: float
    ) -> Iterator[ToPeer | Append]:
        if follower.asked > NEVER and not self._stuck(follower, now):
            return
        snapshot = self._snapshot(state)
        follower.expelled = not snapshot
        pieces = [snapshot[start : start + _PIECE] for start in range(0, len(snapshot), _PIECE)]
        for number, piece in enumerate(pieces):
            message = StatePiece(self._shard, view.epoch, now, state.index, number, len(pieces), piece)
            yield ToPeer(name, message)
        follower.asked = follower.progress = now

    def _send_entries(
        self, name: str, follower: Follower, view: ShardView, state: State, now: float, reads: bool
    ) -> Iterator[ToPeer | Append]:
        assert follower.index is not None
        if follower.sent == follower.index:
            follower.progress = now
        elif self._stuck(follower, now):
            follower.sent, follower.progress = follower.index, now
        idle = now - follower.asked
        urgent = reads and follower.lease <= now and idle > self._timing.beat / 10
        if follower.sent < state.index or idle >= self._timing.beat or urgent:
            for entries in _batches(self._after(follower.sent, state)):
                yield ToPeer(name, Replicate(self._shard, view.epoch, now, follower.sent + 1, entries))
                follower.sent, follower.asked = follower.sent + len(entries), now

    def _snapshot(self, state: State) -> bytes:
        """Return a snapshot; empty if a method has put an object into the state that cannot be pickled."""
        try:
            return state.snapshot()
        except Exception:  # noqa: BLE001 - a user's class may raise anything
            _log.exception("an object of shard %s cannot be pickled any more: it cannot be replicated", self._shard)
            return b""

    def _write(self, log: Follower, view: ShardView, state: State, check: bool) -> Iterator[ToPeer | Append]:
        if self._writing or not (check or log.sent < state.index):
            return
        entries, first = self._after(log.sent, state), log.sent + 1
        self._unsaved[0] += len(entries)
        self._unsaved[1] += sum(map(len, entries))
        snapshot = b""
        if self._unsaved[0] >= self._limits.log_entries or self._unsaved[1] >= self._limits.log_bytes:
            snapshot, self._unsaved = self._snapshot(state), [0, 0]
        self._writing, log.sent = True, state.index
        yield Append(view.epoch, first, entries, snapshot)


class StatePieces:
    """Pieces of snapshots that arrive at a backup."""

    def __init__(self) -> None:
        self._snapshots: dict[tuple[float, int], dict[int, bytes]] = {}
        """By the time when each was sent, and its last entry."""

    def add(self, message: StatePiece) -> bytes:
        """Add a piece; returns the snapshot when it is whole, until then nothing."""
        pieces = self._snapshots.setdefault((message.sent, message.index), {})
        pieces[message.piece] = message.body
        if len(pieces) < message.pieces:
            return b""
        self._snapshots.clear()
        return b"".join(pieces[number] for number in range(message.pieces))


def _batches(entries: tuple[bytes, ...]) -> Iterator[tuple[bytes, ...]]:
    """Divide entries by their bytes. Without entries: one empty batch."""
    batch, size = list[bytes](), 0
    for entry in entries:
        if batch and size + len(entry) > _PIECE:
            yield tuple(batch)
            batch, size = [], 0
        batch.append(entry)
        size += len(entry)
    yield tuple(batch)
