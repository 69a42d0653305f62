"""Messages between the driver that runs a gang and the drivers that lend it slots, over a connection for each attempt.

    borrower                          lender
       |-- AskSlots ------------------->|
       |<------------------ HostSlots --|   of all hosts; the borrower chooses some of them
       |-- LendSlots, with the tasks -->|   waits in the pool's turn until as many slots are idle
       |<----------------------- Lent --|   the slots stay idle
       |-- BeginTasks ----------------->|   sent once all chosen hosts have answered
       |<----- TaskReport, TaskOver -----|   of each task
       |-- EndTask -------------------->|

The end of the connection ends the tasks that still run, and frees the slots.
"""

from __future__ import annotations

from msgspec import Struct

from treadle.executors.program import Report, Task

MESSAGE_BYTES = 64 << 20
"""Maximum of a message. One has all tasks that a host runs of a gang."""

# -- from the borrower ----------


class AskSlots(Struct, frozen=True, tag="ask"):
    """`HostSlots` answers."""

    executor: str


class LendSlots(Struct, frozen=True, tag="lend"):
    """Ask for a slot for each task, all at once. `Lent` answers."""

    executor: str
    tasks: tuple[Task, ...]


class BeginTasks(Struct, frozen=True, tag="begin"):
    """All slots of the gang are lent: the tasks start."""


class EndTask(Struct, frozen=True, tag="end"):
    """Kill a task. `TaskOver` answers."""

    task: str


FromBorrower = AskSlots | LendSlots | BeginTasks | EndTask

# -- from the lender ----------


class HostSlots(Struct, frozen=True, tag="slots"):
    """The slots of a host that may be lent."""

    host: str
    """Host id."""
    slots: int
    idle: int


class Lent(Struct, frozen=True, tag="lent"):
    """There is an idle slot for each task."""


class TaskReport(Struct, frozen=True, tag="report"):
    task: str
    report: Report


class TaskOver(Struct, frozen=True, tag="over"):
    """The task's slot is free again."""

    task: str
    error: str = ""
    """The error that `Slot.run` raised."""
    hint: str = ""
    users: bool = False
    """The user must act on the error."""


ToBorrower = HostSlots | Lent | TaskReport | TaskOver
