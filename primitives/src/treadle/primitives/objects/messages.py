"""Messages of clients and keepers, and the entries that replicas apply. Each names its shard by number.

A session belongs to one thread of a client and has one call at a time: call n acknowledges the answers before it.
"""

from __future__ import annotations

from msgspec import Struct

from ..addresses import parse

CREATE = ""
"""The method of a call that creates its object unless it exists."""
DROP = "."
"""The method of a call that removes its object."""


def address_of(keeper: str) -> str:
    """Return the address in a keeper's name."""
    return keeper.partition("#")[0]


def host_of(keeper: str) -> str:
    """Return the host in a keeper's name; empty when only processes of its own host can reach it."""
    target = parse(address_of(keeper))
    return "" if target.scheme == "unix" else target.host


def nearby_of(keeper: str) -> str:
    """Return a second address for processes of the keeper's host, where it has one: a Unix socket needs no TLS."""
    return f"unix:treadle-{keeper.partition('#')[2]}" if host_of(keeper) else ""


class ShardView(Struct, frozen=True, array_like=True):
    """The keepers of a shard in one epoch. Epochs are the numbers of a chain in the store.

    A keeper's name is its address, `#`, and a nonce: a keeper that starts again is another keeper.
    """

    epoch: int = 0
    primary: str = ""
    backups: tuple[str, ...] = ()
    incarnation: int = 0
    """Rises when the state of the shard was lost."""

    @property
    def members(self) -> tuple[str, ...]:
        return (self.primary, *self.backups)

    def has_room_for(self, keeper: str, copies: int) -> bool:
        """Return whether a keeper may join: the view has fewer than `copies` members, and none on its host."""
        hosts = {host_of(member) for member in self.members if host_of(member)}
        return len(self.members) < copies and keeper not in self.members and host_of(keeper) not in hosts


# -- from clients ----------


class OpenSession(Struct, frozen=True, tag="open", array_like=True):
    """Begin a session. `SessionOpened` answers."""

    shard: int
    nonce: int


class MethodCall(Struct, frozen=True, tag="call", array_like=True):
    """Call a method. Sent again, with equal contents, until `MethodAnswer` comes."""

    shard: int
    session: int
    sequence: int
    object: str
    method: str
    arguments: bytes
    """Pickle of (arguments, keywords); b"" without arguments."""
    timeout: float | None = None
    """Seconds that the call may wait for its guard."""


class KeepSession(Struct, frozen=True, tag="alive", array_like=True):
    """Keep a session. A call before `sequence` that still waits is withdrawn."""

    shard: int
    session: int
    sequence: int


class EndSession(Struct, frozen=True, tag="bye", array_like=True):
    """End a session."""

    shard: int
    session: int


# -- to clients ----------


class SessionOpened(Struct, frozen=True, tag="opened", array_like=True):
    """The session has begun. It ends after `lease` seconds without a message."""

    shard: int
    nonce: int
    session: int
    lease: float
    epoch: int
    """Of the primary's view: all its members have the state, if the view is still the newest one."""


class MethodAnswer(Struct, frozen=True, tag="answer", array_like=True):
    """The answer to a call."""

    session: int
    sequence: int
    kind: int
    body: bytes = b""


VALUE, RAISED, MISSING, LATE, REFUSED, EXPIRED, WITHDRAWN = range(7)
"""Kinds of answers. The body is a pickle of the value, a pickle of (exception, traceback), or a text."""


class NotPrimary(Struct, frozen=True, tag="elsewhere", array_like=True):
    """This keeper does not serve the shard. It knows views up to this epoch."""

    shard: int
    epoch: int


# -- between keepers ----------


class Replicate(Struct, frozen=True, tag="replicate", array_like=True):
    """Apply entries `first`, `first` + 1, ... Without entries it only asks for `Acknowledge`."""

    shard: int
    epoch: int
    sent: float
    """The primary's clock, for its lease."""
    first: int
    entries: tuple[bytes, ...] = ()


class StatePiece(Struct, frozen=True, tag="state", array_like=True):
    """A piece of the state after entry `index`."""

    shard: int
    epoch: int
    sent: float
    index: int
    piece: int
    pieces: int
    body: bytes


class Acknowledge(Struct, frozen=True, tag="acknowledge", array_like=True):
    """The backup has applied all entries up to `index`, and takes part in no later view during the lease."""

    shard: int
    epoch: int
    sent: float
    index: int
    digested: int = 0
    """The index after which `digest` was computed."""
    digest: bytes = b""


class Introduction(Struct, frozen=True, tag="keeper", array_like=True):
    """The first message of a keeper to another one: its name."""

    keeper: str


class Stale(Struct, frozen=True, tag="stale", array_like=True):
    """A view of this epoch exists: read the chain."""

    shard: int
    epoch: int


class JoinView(Struct, frozen=True, tag="join", array_like=True):
    """The sender wants to become a backup."""

    shard: int
    epoch: int


FromClient = OpenSession | MethodCall | KeepSession | EndSession
ToClient = SessionOpened | MethodAnswer | NotPrimary
Between = Replicate | StatePiece | Acknowledge | Stale | JoinView
ToKeeper = FromClient | Between | Introduction


# -- entries ----------


class BeganEntry(Struct, frozen=True, tag=0, array_like=True):
    """A session begins; its number is that of the entry."""

    time: float


class MethodEntry(Struct, frozen=True, tag=1, array_like=True):
    time: float
    session: int
    sequence: int
    object: str
    method: str
    arguments: bytes
    deadline: float | None = None
    """The time of the entry after which the call no longer waits."""


class RejectedEntry(Struct, frozen=True, tag=2, array_like=True):
    """A limit does not allow a call."""

    time: float
    session: int
    sequence: int
    reason: str


class WithdrawnEntry(Struct, frozen=True, tag=3, array_like=True):
    """A call no longer waits."""

    time: float
    session: int


class EndedEntry(Struct, frozen=True, tag=4, array_like=True):
    time: float
    session: int


class PassedEntry(Struct, frozen=True, tag=5, array_like=True):
    """Time has passed: waiting calls are due."""

    time: float


Entry = BeganEntry | MethodEntry | RejectedEntry | WithdrawnEntry | EndedEntry | PassedEntry
