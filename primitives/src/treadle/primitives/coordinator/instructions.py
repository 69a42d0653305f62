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


Instruction = Send | Close | Deliver
