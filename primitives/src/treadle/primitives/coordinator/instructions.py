"""Instructions from the coordinator to its shell."""

from __future__ import annotations

from typing import NamedTuple

from ..encoding.references import BlockRef
from .messages import ToMember


class SendToConnection(NamedTuple):
    """Write a message to a connection. Members that get one message in a batch share one object: encode it once."""

    connection: int
    message: ToMember


class Disconnect(NamedTuple):
    """Close a connection once all earlier messages are written; the coordinator has forgotten it."""

    connection: int


class Deliver(NamedTuple):
    """Give the result of a task to the task's owner: once for each task."""

    task: str
    member: str
    result: bytes


class Returned(NamedTuple):
    """Give a task back to its owner: it was meant for one member, which gave it up, left or was lost."""

    task: str
    member: str
    lost: bool
    """The member was lost while it held the task: the task may have begun, and its progress is unknown."""


class StateSaved(NamedTuple):
    """Give the owner of a gang the state that a member has saved for a checkpoint."""

    member: str
    checkpoint: int
    state: BlockRef


Instruction = SendToConnection | Disconnect | Deliver | Returned | StateSaved
