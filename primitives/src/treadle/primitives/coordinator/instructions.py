"""What the coordinator tells its shell to do."""

from __future__ import annotations

from typing import NamedTuple

from .messages import ToMember


class Send(NamedTuple):
    """Write a message to a connection. What many get in one batch is one object: encode it once."""

    connection: int
    message: ToMember


class Close(NamedTuple):
    """End a connection once what was sent before is written; the coordinator knows it no more."""

    connection: int


class Deliver(NamedTuple):
    """The result of a task, for whoever offered it: once for each task."""

    task: str
    member: str
    result: bytes


class Returned(NamedTuple):
    """A task that was for one member, which gave it up, left or was lost; whoever offered it has it again."""

    task: str
    member: str
    lost: bool
    """It may have begun, and nobody knows how far it came."""


Instruction = Send | Close | Deliver | Returned
