"""User functions of a program, with the values that they get besides records."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from treadle.primitives.encoding.references import Slice


class Value(Struct, frozen=True, tag="value"):
    """A JSON value. Each partition receives a fresh copy."""

    value: Any


class Broadcast(Struct, frozen=True, tag="broadcast"):
    """The value of a broadcast stage: the single record of the block."""

    slice: Slice


class SecretRef(Struct, frozen=True, tag="secret"):
    """A secret by name. The runtime resolves it and redacts it from all data that leaves the task."""

    name: str


Arg = Value | Broadcast | SecretRef


class UsedObject(Struct, frozen=True):
    """A shared object that a function may use."""

    state: Arg
    """Its state before the stage."""
    merges: bool
    """The function may call methods that merge; otherwise only methods that read."""


class Call(Struct, frozen=True):
    """A user function and its keyword arguments."""

    function: str
    """`module:qualname`, or `captured:<digest>`."""
    args: dict[str, Arg] = {}
    objects: dict[str, UsedObject] = {}
