"""What members of a channel say to each other, over paths that keep order and lose nothing (protocols/path.py).

Every message carries the epoch of its sender's view; one from a later view waits until the receiver has that view.
Data messages carry values; all others are control messages, small and counted apart.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from ..encoding.references import Kind, Slice


class Payload(Struct, frozen=True, array_like=True, gc=False):
    """A value, encoded (codec.py): in the message itself, or in a block the receiver gets."""

    kind: Kind | Literal["bytes", "plain", "numbers"]
    """`bytes`: the value itself. `plain`: a pickle of one of a few builtin types. `numbers`: a small array's bytes."""
    data: bytes = b""
    slice: Slice | None = None
    dtype: str = ""
    shape: tuple[int, ...] = ()
    """Of `numbers`, with `dtype`."""


class Said(Struct, frozen=True, array_like=True):
    """What every message begins with."""

    channel: str
    epoch: int


class Cast(Said, frozen=True, tag=1, gc=False):
    """A broadcast value on its way along the tree. Data."""

    sender: str
    number: int
    """Its count: 1, 2, ..."""
    born: int
    """The sender's epoch when it sent; members that joined later do not get it."""
    payload: Payload


class Have(Said, frozen=True, tag=2):
    """To a new neighbour: what I have of each sender, so that you send what I lack."""

    numbers: dict[str, int]


class Taken(Said, frozen=True, tag=3):
    """To the parent: what the users of my subtree have all received, by sender."""

    numbers: dict[str, int]


class Stable(Said, frozen=True, tag=4):
    """To children: what everybody has received; it need be kept no longer."""

    numbers: dict[str, int]


class Partial(Said, frozen=True, tag=5):
    """To the parent: the fold of my subtree. Data."""

    round: int
    payload: Payload


class Done(Said, frozen=True, tag=6):
    """To children: the root has the result of this round."""

    round: int


class Failed(Said, frozen=True, tag=7):
    """To all neighbours in turn: this round has no result, because."""

    round: int
    reason: str


class Plan(Struct, frozen=True, array_like=True):
    """Who takes part in the rounds of a shuffle from `first` on."""

    first: int
    epoch: int
    producers: tuple[str, ...]
    consumers: tuple[str, ...]


class Standing(Struct, frozen=True, array_like=True):
    """What a member knows of the rounds so far, merged on the way up the tree."""

    decided: int = 0
    """The last round that is over (reduce) or begun (shuffle)."""
    failures: dict[int, str] = {}
    """Rounds that failed, and why."""
    loss: int = 0
    """The latest epoch that lost a member."""
    answered: int = 0
    """The latest such epoch that a round has failed for."""
    lost: tuple[str, ...] = ()
    plans: tuple[Plan, ...] = ()


class Status(Said, frozen=True, tag=8):
    """To the parent, in a new epoch: how far my subtree is."""

    standing: Standing


class Agreed(Said, frozen=True, tag=9):
    """To children: from where everybody goes on in this epoch."""

    standing: Standing


class Pieces(Said, frozen=True, tag=10):
    """From a producer to a consumer: its piece of a round; None: an empty one. Data."""

    round: int
    plan: int
    """Epoch of the plan the records were distributed by."""
    payload: Payload | None


class Got(Said, frozen=True, tag=11):
    """To a producer: its block of this round is mapped here."""

    round: int


class Leaving(Said, frozen=True, tag=12):
    """To neighbours: I am about to leave; what I have sent you, and know of the rounds, must not go with me."""

    standing: Standing


class Noted(Said, frozen=True, tag=13):
    """The answer to `Leaving`."""


Message = Cast | Have | Taken | Stable | Partial | Done | Failed | Status | Agreed | Pieces | Got | Leaving | Noted
DATA = frozenset((Cast, Partial, Pieces))


class Letter(Struct, frozen=True, array_like=True, gc=False):
    """A message on a path, or (without one) only its acknowledgement."""

    number: int
    """1, 2, ... on this path; 0: none, only `seen` counts."""
    seen: int
    """All up to here have arrived from the other side."""
    message: Message | None = None
    last: bool = False
    """The sender ends once this is acknowledged."""


class Caller(Struct, frozen=True, array_like=True):
    """The first message on a connection: who dialled."""

    member: str
    called: str
    """Whom: an address may have become another's since."""
