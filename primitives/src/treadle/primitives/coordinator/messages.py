"""What members and their coordinator say to each other. Small: data travels between members, as blocks or messages.

A connection begins with the mutual challenge of `wire`; nothing is decoded before that. Every message of a member
names itself by the connection it comes over; a **member** is one process, known by a name that nobody else of the run
has. A **channel** is a named group of members with one collective; its members stand in **seats** 0 .. n-1, and the
member of seat i is the child of seat (i - 1) // fan-out: a balanced tree without gaps.
"""

from __future__ import annotations

from msgspec import Struct

# -- from a member ----------


class Hello(Struct, frozen=True, tag="hello"):
    """The first message: who it is. Again after a reconnect, followed by a Join for each channel it was in."""

    member: str
    address: str
    """Where other members reach it, `tcp://host:port` or `tls://host:port`; empty: it cannot accept connections."""
    host: str = ""
    """Host id: members with the same one share memory."""


class Alive(Struct, frozen=True, tag="alive"):
    """Renews the lease. The coordinator says it back, so that a member on a dead link knows."""


class Join(Struct, frozen=True, tag="join"):
    """Become a member of a channel, or say so again after a reconnect."""

    channel: str
    parties: int = 1
    """The first view is withheld until so many have joined."""
    fan_out: int = 2
    """Of the tree; the first to join decides, another value later is refused."""
    role: str = ""
    """Free for the collective: `producer`, `consumer`, ..."""
    epoch: int = 0
    """Of the last view seen; 0: joins anew."""
    seat: int = -1
    """In that view."""


class Leave(Struct, frozen=True, tag="leave"):
    """Leave a channel in good order: nothing of this member is awaited any more."""

    channel: str


class Bye(Struct, frozen=True, tag="bye"):
    """Leave everything in good order."""


class Wait(Struct, frozen=True, tag="wait"):
    """Arrive at a barrier; `Released` or `Broken` answers. Said again after a reconnect."""

    barrier: str
    parties: int
    generation: int
    """How many times this member has passed the barrier."""
    elsewhere: bool = False
    """The parties meet without the coordinator, in memory they share: it only tells them when the barrier breaks."""


class Count(Struct, frozen=True, tag="count"):
    """How many have joined this channel, or wait at this barrier? `Counted` answers: an error can then say so."""

    subject: str


class Announce(Struct, frozen=True, tag="announce"):
    """This member serves these blocks. Soft: said again after a reconnect."""

    blocks: tuple[str, ...]


class Withdraw(Struct, frozen=True, tag="withdraw"):
    """It no longer does."""

    blocks: tuple[str, ...]


class Locate(Struct, frozen=True, tag="locate"):
    """Who serves this block? `Located` answers."""

    block: str


class Reach(Struct, frozen=True, tag="reach"):
    """Help me to connect to a member I cannot dial: `Dial` goes to both."""

    member: str


class Relay(Struct, frozen=True, tag="relay"):
    """Pass a small message on to a member there is no path to yet."""

    member: str
    body: bytes


class Take(Struct, frozen=True, tag="take"):
    """It can take so many tasks more, from now on. Said again after a reconnect; each `Task` takes one off."""

    free: int = 1


class GiveUp(Struct, frozen=True, tag="give-up"):
    """It will not finish this task: somebody else shall have it."""

    task: str
    epoch: int


class Finished(Struct, frozen=True, tag="finished"):
    """A task is done; `Accepted` or `Refused` answers. Said again after a reconnect until it is answered."""

    task: str
    epoch: int
    result: bytes = b""


# -- to a member ----------


class Seat(Struct, frozen=True, array_like=True):
    """A member in a view."""

    member: str
    address: str
    host: str = ""
    role: str = ""


class Change(Struct, frozen=True, array_like=True):
    """What a new view puts into one seat; None: the seat is no more, and neither is any after it."""

    seat: int
    occupant: Seat | None


class View(Struct, frozen=True, tag="view"):
    """The members of a channel from now on: every view of a channel has a higher epoch than the one before.

    Applied to the view of epoch `since`; `since` 0: to an empty one.
    """

    channel: str
    epoch: int
    since: int
    changes: tuple[Change, ...]
    fan_out: int
    lost: tuple[str, ...] = ()
    """Members that failed since (those that left in good order are not named)."""


class Refused(Struct, frozen=True, tag="refused"):
    """The message before this cannot be done, and why; `subject` is the channel, barrier, block or member it named."""

    subject: str
    reason: str


class Released(Struct, frozen=True, tag="released"):
    barrier: str
    generation: int


class Broken(Struct, frozen=True, tag="broken"):
    """A party of this generation failed; nobody will be released from it."""

    barrier: str
    generation: int
    lost: tuple[str, ...]


class Counted(Struct, frozen=True, tag="counted"):
    """So many are there, of so many that are awaited; 0 of 0: nobody has named it yet."""

    subject: str
    present: int
    parties: int


class Located(Struct, frozen=True, tag="located"):
    """Members that serve a block; none: nobody does."""

    block: str
    seats: tuple[Seat, ...]


class Dial(Struct, frozen=True, tag="dial"):
    """Both sides dial each other now. Addresses as the coordinator sees them, behind whatever translates them."""

    member: str
    address: str
    token: bytes
    """The same on both sides and nowhere else: proves the path."""
    delay: float = 0.0
    """Seconds from receipt at which to begin, so that both begin together."""


class Relayed(Struct, frozen=True, tag="relayed"):
    member: str
    body: bytes


class Task(Struct, frozen=True, tag="task"):
    """A task that is this member's until it is finished, given up, or the member is lost. Again after a reconnect."""

    task: str
    epoch: int
    """Rises each time the task is handed out: what an earlier holder says of it is refused."""
    body: bytes


class Accepted(Struct, frozen=True, tag="accepted"):
    """The result of a task has arrived."""

    task: str
    epoch: int


class Withdrawn(Struct, frozen=True, tag="withdrawn"):
    """Its owner wants the task no more: it may be stopped, and its result is refused."""

    task: str
    epoch: int


class Dismissed(Struct, frozen=True, tag="dismissed"):
    """The member is not needed any more; it answers with Bye."""


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
    | Task
    | Accepted
    | Withdrawn
    | Dismissed
    | Alive
)
