"""Which way events take to the run that they start, and why. Pure."""

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


class Choice(Struct, frozen=True):
    """A way and why it is taken."""

    way: Way
    reason: str


def choose(asked: Literal["auto"] | Way, size: int | None, age: float, topic: Topic | None) -> Choice:
    """The way of a batch.

    `size` is the length of its items as JSON, None when they are none (bytes); `age` of its oldest record, in seconds;
    `topic` None: the broker does not tell how long it keeps records. Raises UsageError for what cannot be inline.
    """
    if asked == "inline" and size is None:
        raise UsageError("events that are bytes cannot be inline", "Write `events: range` or `events: capture`.")
    if asked != "auto":
        return Choice(asked, "the trigger says so")
    if size is not None and size <= INLINE_BYTES:
        return Choice("inline", f"{size:,} bytes are at most {INLINE_BYTES:,}")
    what = "they are bytes" if size is None else f"{size:,} bytes are more than {INLINE_BYTES:,}"
    why_not = _why_not_there(age, topic)
    return (
        Choice("capture", f"{what}, and {why_not}") if why_not else Choice("range", f"{what}, and the topic keeps them")
    )


def _why_not_there(age: float, topic: Topic | None) -> str:
    """Why the topic may not have the records any more when the run reads them; empty: it will."""
    if topic is None:
        return "it is unknown how long the topic keeps them"
    if topic.compacted:
        return "the topic is compacted"
    if topic.bytes is not None:
        return f"the topic keeps {topic.bytes:,} bytes only, however old"
    if topic.seconds is not None and topic.seconds - age < NEEDED:
        return f"the topic keeps them for {max(0.0, topic.seconds - age) / 3600:.1f} h more"
    return ""
