"""Which way events take to the run that they start. Pure."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from treadle.primitives.errors import UsageError

INLINE_BYTES = 64 * 2**10
"""What runs get in their inputs unless the trigger says otherwise; it is read again with every look at the run."""
NEEDED = 86_400.0
"""Seconds for which records must still be there, so that a run that waits or is resumed can read them."""

Way = Literal["inline", "range", "capture"]


class Topic(Struct, frozen=True):
    """How long a topic keeps what is written to it."""

    seconds: float | None
    """None: for ever."""
    bytes: int | None = None
    """The most a partition keeps; None: no matter how much."""
    compacted: bool = False
    """A record goes when a newer one of its key comes."""


def choose(asked: Literal["auto"] | Way, size: int | None, age: float, topic: Topic | None) -> Way:
    """The way of a batch; a range only where the topic will have the records when the run reads them.

    `size` is the length of its items as JSON, None when inputs do not take them; `age` of its oldest record, in
    seconds; `topic` None: the broker does not tell how long it keeps records. Raises UsageError for what cannot be
    inline.
    """
    if asked == "inline" and size is None:
        text = "events with bytes or with whole numbers of more than 64 bits cannot be inline"
        raise UsageError(text, "Write `events: range` or `events: capture`.")
    if asked != "auto":
        return asked
    if size is not None and size <= INLINE_BYTES:
        return "inline"
    if topic is None or topic.compacted or topic.bytes is not None:
        return "capture"
    return "range" if topic.seconds is None or topic.seconds - age >= NEEDED else "capture"
