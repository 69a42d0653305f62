"""Attempts between hosts behind NATs. docs/nat.md has the conclusions."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial

import namespaces
import pytest
from namespaces import Nat, Nats, cut, two_nats
from primitives.traversal.two_sides import BRIEF, Side, carries, introduced, new_token, opened, together

from treadle.primitives.hole_punching import NoPath, Schedule
from treadle.primitives.wire import Connection, Identity

pytestmark = pytest.mark.skipif(bool(namespaces.unsupported()), reason=namespaces.unsupported())

KEEPING, RESETTING, RANDOM = Nat(), Nat(unsolicited="reset"), Nat(mapping="random")


@pytest.fixture(scope="module")
def keeping() -> Iterator[Nats]:
    """Two NATs that keep ports. Each test uses its own ports."""
    with two_nats(KEEPING, KEEPING) as hosts:
        yield hosts


def opens(left: Side, right: Side, *, late: float = 0.0, tls: Identity | None = None) -> None:
    token = new_token()
    with together(
        partial(opened, left, right, token, tls=tls), partial(opened, right, left, token, tls=tls, delay=late)
    ) as (one, other):
        assert isinstance(one, Connection), one
        assert isinstance(other, Connection), other
        carries(one, other)


def fails(left: Side, right: Side, schedule: Schedule = BRIEF) -> None:
    token = new_token()
    with together(
        partial(opened, left, right, token, schedule=schedule), partial(opened, right, left, token, schedule=schedule)
    ) as ends:
        assert all(isinstance(end, NoPath) for end in ends), ends


@pytest.mark.parametrize("late", [0.0, 0.5])
def test_a_path_through_two_nats_carries_bytes_both_ways(keeping: Nats, late: float) -> None:
    with introduced(*keeping) as sides:
        opens(*sides, late=late)


@pytest.mark.parametrize(
    ("left", "right", "late"),
    [(KEEPING, RESETTING, 0.0), (RESETTING, KEEPING, 0.2)],
)
def test_a_nat_that_answers_with_resets_costs_another_dial(left: Nat, right: Nat, late: float) -> None:
    with two_nats(left, right) as hosts, introduced(*hosts) as sides:
        opens(*sides, late=late)


def test_a_path_through_two_nats_is_encrypted(keeping: Nats, identity: Identity) -> None:
    with introduced(*keeping) as sides:
        opens(*sides, tls=identity)


@pytest.mark.parametrize("turned", [False, True])
def test_one_open_side_is_enough_for_any_nat(turned: bool) -> None:
    """The open side is the coordinator's host."""
    with two_nats(RANDOM) as (public, left, _), introduced(public, left, public) as (behind, free):
        sides = (free._replace(member="left"), behind._replace(member="right")) if turned else (behind, free)
        opens(*sides)


@pytest.mark.parametrize(("left", "right"), [(RANDOM, KEEPING), (KEEPING, RANDOM)])
def test_no_path_behind_a_nat_with_a_port_for_each_peer(left: Nat, right: Nat) -> None:
    with two_nats(left, right) as hosts, introduced(*hosts) as sides:
        fails(*sides)


@pytest.mark.parametrize("both_ways", [True, False])
def test_an_attempt_over_a_cut_link_ends(keeping: Nats, both_ways: bool) -> None:
    """One way is the worse case: one end of the connection exists and receives nothing."""
    with introduced(*keeping) as sides, cut(keeping.left, keeping.right, both_ways=both_ways):
        fails(*sides)
    with introduced(*keeping) as sides:
        opens(*sides)


@pytest.mark.parametrize("both_ways", [True, False])
def test_a_link_that_heals_during_an_attempt_is_used(keeping: Nats, both_ways: bool) -> None:
    """The first SYNs are lost. The kernel repeats them."""
    with introduced(*keeping) as sides, ExitStack() as link:
        link.enter_context(cut(keeping.left, keeping.right, both_ways=both_ways))
        timer = threading.Timer(0.3, link.close)
        timer.start()
        opens(*sides)
        timer.join()


def test_a_path_opens_again_from_the_same_ports(keeping: Nats) -> None:
    with introduced(*keeping) as sides:
        for _ in range(3):
            opens(*sides)
