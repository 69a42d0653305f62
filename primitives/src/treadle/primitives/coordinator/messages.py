"""Messages between members and their coordinator. Small: data travels between members, as blocks or messages.

A connection begins with the mutual challenge of `wire`; nothing is decoded before that. A message does not name its
sender: the connection does. A **member** is one process, with a name that is unique in the run. A **channel** is a
named group of members with one collective. Its members have **seats** 0 .. n-1; the member of seat i is the child of
seat (i - 1) // fan-out, a balanced tree without gaps.
"""

from __future__ import annotations

from msgspec import Struct

from ..encoding.references import BlockRef

# -- from a member ----------


class Hello(Struct, frozen=True, tag="hello"):
    """The first message: the member's name. Sent again after a reconnect, before a Join for each of its channels."""

    member: str
    address: str
    """The address at which other members reach it, `tcp://host:port` or `tls://host:port`; empty: it cannot accept
    connections.
    """
    host: str = ""
    """Host id: members with equal ids share memory."""
    nearby: str = ""
    """Its address for members with an equal host id, `unix:name`; empty: it has no other address for them."""


def gang_of(member: str) -> str:
    """The gang in a member's name: `gang` in `gang/3.5f..`."""
    return member.rpartition("/")[0]


class Alive(Struct, frozen=True, tag="alive"):
    """Renews the lease. The coordinator echoes it, so that a member can detect a dead link."""


class Join(Struct, frozen=True, tag="join"):
    """Join a channel, or confirm membership after a reconnect."""

    channel: str
    parties: int = 1
    """The first view waits for this number of members."""
    fan_out: int = 2
    """Fan-out of the tree. The first member to join decides; a different value later is refused."""
    role: str = ""
    """Free for the collective: `producer`, `consumer`, ..."""
    epoch: int = 0
    """Epoch of the last view seen; 0: a new member."""
    seat: int = -1
    """The member's seat in that view; the seat that a new member would like to have. -1: none."""
    near: bool = False
    """The member needs to know only the seats next to its own. The first member to join decides."""


class Leave(Struct, frozen=True, tag="leave"):
    """Leave a channel in good order: no member waits for this one any more."""

    channel: str


class Bye(Struct, frozen=True, tag="bye"):
    """Leave everything in good order."""


class Wait(Struct, frozen=True, tag="wait"):
    """Arrive at a barrier; `Released` or `Broken` answers. Sent again after a reconnect."""

    barrier: str
    parties: int
    generation: int
    """How many times this member has passed the barrier."""
    elsewhere: bool = False
    """The parties meet in memory that they share: the coordinator only reports that the barrier is broken."""


class Count(Struct, frozen=True, tag="count"):
    """Ask how many members have joined a channel or wait at a barrier, for an error message. `Counted` answers."""

    subject: str


class Announce(Struct, frozen=True, tag="announce"):
    """This member serves these blocks. Soft state: sent again after a reconnect."""

    blocks: tuple[str, ...]


class Withdraw(Struct, frozen=True, tag="withdraw"):
    """This member no longer serves these blocks."""

    blocks: tuple[str, ...]


class Locate(Struct, frozen=True, tag="locate"):
    """Ask which members serve this block. `Located` answers."""

    block: str


class Reach(Struct, frozen=True, tag="reach"):
    """Ask for help in connecting to a member that cannot be dialled: both members receive `Dial`."""

    member: str


class Relay(Struct, frozen=True, tag="relay"):
    """Forward a small message to a member, until there is a path to it."""

    member: str
    body: bytes


class Take(Struct, frozen=True, tag="take"):
    """The member accepts this number of tasks from now on; each `AssignedTask` uses up one. Sent again after a
    reconnect."""

    free: int = 1


class GiveUp(Struct, frozen=True, tag="give-up"):
    """The member will not finish this task; it is offered to other members or returned."""

    task: str
    epoch: int


class Finished(Struct, frozen=True, tag="finished"):
    """A task is done; `Accepted` or `Refused` answers. Sent again after a reconnect until it is answered."""

    task: str
    epoch: int
    result: bytes = b""


class SaveState(Struct, frozen=True, tag="save"):
    """This member's state for a checkpoint of its gang; `Checkpointed` answers. Sent again after a reconnect."""

    checkpoint: int
    state: BlockRef


# -- to a member ----------


class Seat(Struct, frozen=True, array_like=True):
    """A member in a view."""

    member: str
    address: str
    host: str = ""
    role: str = ""
    nearby: str = ""


class SeatChange(Struct, frozen=True, array_like=True):
    """The new occupant of one seat in a view; None: the tree ends before this seat."""

    seat: int
    occupant: Seat | None


class View(Struct, frozen=True, tag="view"):
    """The members of a channel from now on: every view of a channel has a higher epoch than the one before.

    The changes apply to the view of epoch `since`; with `since` 0 to an empty view. In a channel of `near` members they
    are the member's own seat, its parent's and its children's.
    """

    channel: str
    epoch: int
    since: int
    changes: tuple[SeatChange, ...]
    fan_out: int
    lost: tuple[str, ...] = ()
    """Members lost since that view; members that left in good order are not named."""
    before: int = 0
    """Epoch from which `lost` counts. A member with an older view has missed one, and joins again."""
    previous: int = 0
    """Epoch of the channel's view before this one."""
    told: tuple[int, ...] = ()
    """The seats, now or before, of the members that get this view from the coordinator and pass it on to the others;
    empty: all do."""


class Refused(Struct, frozen=True, tag="refused"):
    """The preceding message was refused, with a reason; `subject` is the channel, barrier, block or member that it
    named.
    """

    subject: str
    reason: str
    ended: bool = False
    """The member that it named has left or was lost: no message will reach it."""


class Released(Struct, frozen=True, tag="released"):
    barrier: str
    generation: int


class Broken(Struct, frozen=True, tag="broken"):
    """A party of this generation failed; the generation will never be released."""

    barrier: str
    generation: int
    lost: tuple[str, ...]


class Counted(Struct, frozen=True, tag="counted"):
    """The number of members present and the number expected; 0 of 0: the subject is unknown."""

    subject: str
    present: int
    parties: int


class Located(Struct, frozen=True, tag="located"):
    """Members that serve a block; empty when none does."""

    block: str
    seats: tuple[Seat, ...]


class Dial(Struct, frozen=True, tag="dial"):
    """Both sides dial each other now. The addresses are as the coordinator sees them, behind any NAT."""

    member: str
    address: str
    token: bytes
    """The same on both sides and secret from all others: proves the path."""
    delay: float = 0.0
    """Seconds from receipt until dialling begins, so that both sides begin together."""


class Relayed(Struct, frozen=True, tag="relayed"):
    member: str
    body: bytes


class AssignedTask(Struct, frozen=True, tag="task"):
    """Assigns a task to this member until the task is finished or given up, or the member is lost. Sent again after a
    reconnect.
    """

    task: str
    epoch: int
    """Rises each time the task is handed out: messages of an earlier holder are refused."""
    body: bytes


class Accepted(Struct, frozen=True, tag="accepted"):
    """The result of a task has arrived."""

    task: str
    epoch: int


class Withdrawn(Struct, frozen=True, tag="withdrawn"):
    """The owner has withdrawn the task: it may be stopped, and its result is refused."""

    task: str
    epoch: int


class Checkpointed(Struct, frozen=True, tag="checkpointed"):
    """The owner has recorded the checkpoint, or never will: then `refused` gives the reason."""

    checkpoint: int
    refused: str = ""


class Dismissed(Struct, frozen=True, tag="dismissed"):
    """The owner does not need the member any more, or its gang has ended; it answers with Bye."""


FromMember = (
    Hello
    | Alive
    | Join
    | Leave
    | Bye
    | Wait
    | Count
    | Announce
    | Withdraw
    | Locate
    | Reach
    | Relay
    | Take
    | GiveUp
    | Finished
    | SaveState
)
ToMember = (
    View
    | Refused
    | Released
    | Broken
    | Counted
    | Located
    | Dial
    | Relayed
    | AssignedTask
    | Accepted
    | Withdrawn
    | Checkpointed
    | Dismissed
    | Alive
)
