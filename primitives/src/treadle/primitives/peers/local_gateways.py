"""Gateways in this process, for readers that are not on a member's host, such as a driver that reads from
its members.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Members(NamedTuple):
    """The members of one coordinator."""

    has: Callable[[str], bool]
    """Returns whether it has the member of this name. For any thread."""
    gateway: str
    """The address of the gateway that reaches them."""


_all: list[Members] = []


def add(members: Members) -> None:
    """Register members until they are removed."""
    _all.append(members)


def remove(members: Members) -> None:
    """Remove members; does nothing for members that were not added."""
    if members in _all:
        _all.remove(members)


def gateway_to(member: str) -> str:
    """Return a gateway that reaches the member, or "". Members of different coordinators never have the same name."""
    return next((members.gateway for members in list(_all) if member and members.has(member)), "")
