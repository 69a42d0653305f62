"""Errors of collectives."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import TreadleError

EQUALLY_OFTEN = "All members of a gang must call checkpoint equally often."


class MemberLost(TreadleError):
    """A member of the channel failed, so this operation has no result; the next operation is among the remaining
    members.
    """

    def __init__(self, channel: str, lost: Sequence[str]) -> None:
        self.lost = tuple(lost)
        super().__init__(
            f"{channel}: lost {', '.join(map(short, self.lost)) or 'a member'} while the channel was in use",
            'The others may go on without it; on_loss="go on" makes a channel do so by itself.',
        )


class GangEnded(TreadleError):
    """Another member of the gang failed, so the attempt of all members is over: the function is to end."""

    def __init__(self) -> None:
        super().__init__(
            "another member of the gang failed, and all members start again", "Let this error end the function."
        )


class DeadlinePassed(TreadleError):
    """An operation took longer than its deadline."""


class ReduceFailed(TreadleError):
    """The reduce function raised at another member, or that member gave up: this round has no result."""


def rank_of(member: str) -> str:
    """The rank in a member's name: `3` in `gang/3.5f..`."""
    return member.rpartition("/")[2].partition(".")[0]


def short(member: str) -> str:
    """The name of a member in messages: `gang/3.5f..` is `member 3`."""
    rank = rank_of(member)
    return f"member {rank}" if rank.isdigit() else member
