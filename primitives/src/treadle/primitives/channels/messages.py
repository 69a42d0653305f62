"""Messages between members of a channel, over paths that keep order and lose nothing (protocols/reliable_stream.py).

Every message carries the epoch of its sender's view; a message from a later view waits until the receiver has that
view. Data messages carry values. All others are control messages: small, and counted separately.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from ..encoding.references import Kind, Slice


class Payload(Struct, frozen=True, array_like=True, gc=False):
    """An encoded value (encoding/codec.py): in the message itself, or in a block that the receiver reads."""

    kind: Kind | Literal["bytes", "plain", "numbers"]
    """`bytes`: the value itself. `plain`: a pickle of one of a few builtin types. `numbers`: a small array's bytes."""
    data: bytes = b""
    slice: Slice | None = None
    dtype: str = ""
    shape: tuple[int, ...] = ()
    """Shape of `numbers`; `dtype` is their type."""


class Said(Struct, frozen=True, array_like=True):
    """Common fields of all messages."""

    channel: str
    epoch: int


class Cast(Said, frozen=True, tag=1, gc=False):
    """Data: a broadcast value on its way along the tree."""

    sender: str
    number: int
    """The sender's count of values: 1, 2, ..."""
    born: int
    """The sender's epoch at sending; members that joined later do not receive the value."""
    payload: Payload


class Have(Said, frozen=True, tag=2):
    """To a new neighbour: the values that the sender of this message has, so that it receives those it lacks."""

    numbers: dict[str, int]


class Taken(Said, frozen=True, tag=3):
    """To the parent: for each sender, the last value that all users of the subtree have received."""

    numbers: dict[str, int]


class Stable(Said, frozen=True, tag=4):
    """To children: for each sender, the last value that all members have received; members need not keep values up to
    it.
    """

    numbers: dict[str, int]


class Partial(Said, frozen=True, tag=5):
    """Data, to the parent: the fold of the subtree."""

    round: int
    payload: Payload


class RoundDone(Said, frozen=True, tag=6):
    """To children: the root has the result of this round."""

    round: int


class RoundResult(Said, frozen=True, tag=14):
    """Data, to children, in place of `RoundDone`: the result itself, for a round in which all members get it."""

    round: int
    payload: Payload


class RoundFailed(Said, frozen=True, tag=7):
    """To all neighbours in turn: this round has no result, with the reason."""

    round: int
    reason: str


class ShufflePlan(Struct, frozen=True, array_like=True):
    """The members that take part in the rounds of a shuffle from `first` on."""

    first: int
    epoch: int
    producers: tuple[str, ...]
    consumers: tuple[str, ...]


class Standing(Struct, frozen=True, array_like=True):
    """The knowledge of a member about the rounds so far, merged on the way up the tree."""

    decided: int = 0
    """The last round that is over (reduce) or begun (shuffle)."""
    failures: dict[int, str] = {}
    """Rounds that failed, and why."""
    loss: int = 0
    """The latest epoch with a lost member."""
    answered: int = 0
    """The latest such epoch for which a round has failed."""
    lost: tuple[str, ...] = ()
    plans: tuple[ShufflePlan, ...] = ()
    first_rounds: dict[int, int] = {}
    """Maps a round to the latest epoch in which the members agreed to begin with it (reduce)."""
    result: tuple[int, Payload] | None = None
    """The latest round whose result all members get, and the result. Later rounds may have failed."""


class RoundStatus(Said, frozen=True, tag=8):
    """To the parent, in a new epoch: the knowledge of the subtree."""

    standing: Standing


class Agreed(Said, frozen=True, tag=9):
    """To children: the state from which all members continue in this epoch."""

    standing: Standing


class Pieces(Said, frozen=True, tag=10):
    """Data, from a producer to a consumer: its piece of a round; None: an empty piece."""

    round: int
    plan: int
    """Epoch of the plan that assigned the records."""
    payload: Payload | None


class Got(Said, frozen=True, tag=11):
    """To a producer: its block of this round is mapped here."""

    round: int


class Leaving(Said, frozen=True, tag=12):
    """To neighbours: the sender is about to leave; its values and its knowledge of the rounds must reach them first."""

    standing: Standing


class Noted(Said, frozen=True, tag=13):
    """The answer to `Leaving`."""


class Moved(Said, frozen=True, tag=15):
    """To all neighbours in turn: the channel has this epoch. It changes nothing next to members whose seats are not in
    `told`; those get a view from the coordinator.
    """

    previous: int
    told: tuple[int, ...]
    lost: tuple[str, ...]


Message = (
    Cast
    | Have
    | Taken
    | Stable
    | Partial
    | RoundDone
    | RoundResult
    | RoundFailed
    | RoundStatus
    | Agreed
    | Pieces
    | Got
    | Leaving
    | Noted
    | Moved
)
DATA = frozenset((Cast, Partial, RoundResult, Pieces))


class Letter(Struct, frozen=True, array_like=True, gc=False):
    """A message on a path, or without a message only an acknowledgement."""

    number: int
    """1, 2, ... on this path; 0: an acknowledgement only."""
    seen: int
    """Number up to which all letters of the other side have arrived."""
    message: Message | None = None
    last: bool = False
    """The sender ends once this letter is acknowledged."""


class Caller(Struct, frozen=True, array_like=True):
    """The first message on a connection: the name of the dialling member."""

    member: str
    called: str
    """The name of the dialled member: another process may own the address by now."""
