"""Gateways of this process, for readers that are on no member's host: a driver reaches its members so."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Members(NamedTuple):
    """Of one coordinator."""

    has: Callable[[str], bool]
    """Whether it has the member of this name. For any thread."""
    gateway: str
    """Where they are asked."""


_all: list[Members] = []


def add(members: Members) -> None:
    """Until they are removed."""
    _all.append(members)


def remove(members: Members) -> None:
    """What was not added is well too."""
    if members in _all:
        _all.remove(members)


def gateway_to(member: str) -> str:
    """A gateway that reaches the member, or nothing. Members of different coordinators never have the same name."""
    return next((members.gateway for members in list(_all) if member and members.has(member)), "")
