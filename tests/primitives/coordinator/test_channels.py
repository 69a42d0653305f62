"""Channels of the coordinator: the time of a view, and its messages."""

from __future__ import annotations

from typing import Any

import pytest
from primitives.coordinator.test_claims import CHANNEL, Bench, names, occupants, refused

from treadle.primitives.coordinator import Coordinator, CoordinatorLimits, Timing
from treadle.primitives.coordinator import messages as m


def spaced(spacing: float) -> Bench:
    bench = Bench()
    bench.machine = Coordinator(timing=Timing(spacing=spacing), token=lambda: b"t")
    return bench


def lost_by(found: list[Any]) -> dict[str, tuple[str, ...]]:
    return {name: view.lost for name, view in found if isinstance(view, m.View)}


def test_member_that_leaves_a_channel_stays_a_member_and_is_not_named() -> None:
    bench = Bench()
    bench.gang(3)
    for _ in range(2):
        assert bench.say(1, m.Leave(CHANNEL)) == []
    assert lost_by(bench.tick()) == {"m0": (), "m2": ()}
    assert bench.say(0, m.Count(CHANNEL)) == [("m0", m.Counted(CHANNEL, 2, 3))]
    assert bench.machine.present("m1")
    assert bench.tick(5.0) == []


def test_channel_waits_for_the_largest_named_number_of_parties() -> None:
    bench = Bench()
    for number, parties in enumerate((1, 3, 2)):
        bench.connect(number, f"m{number}")
        bench.say(number, m.Join(CHANNEL, parties, fan_out=1))
        assert len(bench.tick() if number else []) == 3 * (number == 2)


def test_interval_of_views_grows_with_their_cost_and_changes_are_gathered() -> None:
    bench = spaced(0.1)
    bench.gang(4)
    for number in (1, 2):
        bench.say(number, m.Leave(CHANNEL))
        assert bench.tick() == []
    assert bench.machine.wakes_at() == 0.4
    assert bench.tick(0.3) == []
    views = dict(bench.tick(0.2))
    assert set(views) == {"m0", "m3"}
    assert {len(view.changes) for view in views.values()} == {2}, "a seat, and the new end"


def test_a_channel_settles_at_a_time_that_later_members_do_not_put_off() -> None:
    bench = Bench()
    for number in range(2):
        bench.connect(number, f"m{number}")
        bench.say(number, m.Join(CHANNEL, 2, epoch=41, seat=number))
        assert bench.tick(1.5 * (1 - number)) == []
    assert bench.tick(0.4) == []
    assert {name: view.epoch for name, view in bench.tick(0.2)} == {"m0": 42, "m1": 42}


def test_member_without_a_view_gets_a_whole_view_of_the_remaining_members() -> None:
    bench = Bench()
    bench.gang(4)
    bench.say(3, m.Bye())
    bench.cut(2)
    assert set(lost_by(bench.tick(1.0))) == {"m0", "m1"}
    bench.cut(1)
    bench.connect(9, "m1")
    assert bench.say(9, m.Join(CHANNEL, 4)) == []
    view = dict(bench.tick())["m1"]
    assert (view.since, names(view), view.lost) == (0, ["m0", "m1"], ())


def test_losses_are_reported_once_to_members_that_do_not_know_them() -> None:
    bench = Bench()
    bench.gang(4)
    bench.cut(3)
    bench.cut(1)
    bench.tick(0.5)
    bench.connect(9, "m1")
    assert lost_by(bench.tick(0.7)) == {"m0": ("m3",), "m2": ("m3",)}
    bench.say(9, m.Join(CHANNEL, 4, epoch=1, seat=1))
    view = dict(bench.tick())["m1"]
    assert (view.lost, names(view)) == (("m3",), ["m0", "m1", "m2"])
    assert bench.tick(5.0) == []


def test_a_member_of_several_channels_leaves_each_by_itself() -> None:
    bench = Bench()
    for number in range(2):
        bench.connect(number, f"m{number}")
        bench.say(number, m.Join("one"), m.Join("two"))
    bench.tick()
    for left, channel in enumerate(("one", "two"), 1):
        bench.say(0, m.Leave(channel))
        assert [(name, view.channel) for name, view in bench.tick()] == [("m1", channel)]
        assert bench.machine.statistics().channels == 2, left
    bench.say(1, m.Bye())
    assert bench.machine.statistics().channels == 0


def test_the_view_that_is_due_first_wakes_it() -> None:
    bench = spaced(0.1)
    bench.connect(0, "m0")
    for number in (1, 2, 3):
        bench.connect(number, f"m{number}")
        bench.say(number, m.Join("large"))
    bench.say(0, m.Join("small"))
    bench.tick()
    bench.say(3, m.Leave("large"), m.Join("small"))
    assert bench.machine.wakes_at() == 0.1
    assert {view.channel for _, view in bench.tick(0.2)} == {"small"}
    assert {view.channel for _, view in bench.tick(0.2)} == {"large"}


def test_once_it_has_settled_a_channel_spaces_its_views() -> None:
    bench = spaced(0.5)
    for number in range(2):
        bench.connect(number, f"m{number}")
        bench.say(number, m.Join(CHANNEL, epoch=7, seat=number))
    assert len(bench.tick(2.0)) == 2
    bench.say(1, m.Leave(CHANNEL))
    assert bench.tick(0.9) == []
    assert len(bench.tick(0.2)) == 1


def test_member_that_missed_a_view_gets_only_losses_since_its_own() -> None:
    bench = Bench()
    bench.gang(4)
    bench.cut(3)
    assert lost_by(bench.tick(1.0)) == dict.fromkeys(("m0", "m1", "m2"), ("m3",))
    bench.cut(2)
    bench.tick(0.5)
    bench.cut(1)
    assert lost_by(bench.tick(0.6)) == {"m0": ("m2",)}
    bench.connect(9, "m1")
    bench.say(9, m.Join(CHANNEL, 4, epoch=2, seat=1))
    view = dict(bench.tick())["m1"]
    assert (view.lost, names(view)) == (("m2",), ["m0", "m1"])


def test_new_address_of_a_returning_member_is_sent_to_all() -> None:
    bench = Bench()
    bench.gang(3)
    bench.cut(1)
    bench.names[9] = "m1"
    bench.machine.connected(9, bench.now)
    bench.say(9, m.Hello("m1", "tcp://moved:1", "host"), m.Join(CHANNEL, 3, epoch=1, seat=1))
    views = dict(bench.tick())
    assert set(views) == {"m0", "m1", "m2"}
    for view in views.values():
        assert [(seat.member, seat.address) for seat in occupants(view)] == [("m1", "tcp://moved:1")]
        assert view.lost == ()


@pytest.mark.parametrize("join", [m.Join("d", fan_out=0), m.Join("d", role="x" * 11), m.Join("d" * 11)])
def test_impossible_channel_is_refused(join: m.Join) -> None:
    bench = Bench(limits=CoordinatorLimits(name=10))
    bench.connect(0, "m0")
    assert refused(bench.say(0, join))
    assert bench.machine.statistics().channels == 0
    assert bench.say(0, m.Join("d" * 10, role="x" * 10, fan_out=1)) == []
