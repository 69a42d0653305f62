"""Instructions from a shard to its shell, and its settings."""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct

from .messages import Between, ShardView, ToClient


class ShardTiming(Struct, frozen=True):
    """Durations in seconds."""

    beat: float = 0.1
    """Between two messages of a primary to a backup."""
    patience: float = 0.8
    """A member that is silent for this time is removed from the view."""
    lease: float = 0.8
    session: float = 30.0
    """The session of a client that is silent for this time ends: its locks are released."""


class ShardLimits(Struct, frozen=True):
    """Limits of one shard. A call above a limit is refused without an effect."""

    sessions: int = 100_000
    waiting: int = 100_000
    arguments: int = 8 << 20
    """Bytes of the arguments of a call."""
    state: int = 64 << 20
    """Bytes of an object's pickle. It is measured from time to time; methods marked `removes` are always accepted."""
    digest: int = 1000
    """Entries between two comparisons of the replicas."""
    log_entries: int = 1000
    """Entries of the log after its last snapshot, at which the next one is written."""
    log_bytes: int = 16 << 20


class ToConnection(NamedTuple):
    """Send a message to a client."""

    connection: int
    message: ToClient


class ToPeer(NamedTuple):
    """Send a message to another keeper. It may be dropped."""

    keeper: str
    message: Between


class Propose(NamedTuple):
    """Create the view in the chain, then pass the newest view to `learned`, also if it is known."""

    view: ShardView


class Look(NamedTuple):
    """Read the views after this epoch and pass the newest to `learned`, also if it is known."""

    epoch: int


class Append(NamedTuple):
    """Append entries to the log, then call `stored` or `fenced`. Without entries: check that it holds no later epoch.

    `state`: a snapshot after these entries, if it is not empty: write it once they are appended.
    """

    epoch: int
    first: int
    entries: tuple[bytes, ...]
    state: bytes


class Load(NamedTuple):
    """Read the state from the log, append the view's epoch to it, and call `loaded` or `fenced`."""

    view: ShardView


Instruction = ToConnection | ToPeer | Propose | Look | Append | Load
