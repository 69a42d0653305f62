"""Connections that have not identified themselves, and the sizes of members' messages."""

from __future__ import annotations

import pytest
from primitives.coordinator.test_claims import Bench, refused

from treadle.primitives.coordinator import CoordinatorLimits, Disconnect
from treadle.primitives.coordinator import messages as m


def test_a_stranger_has_its_lease_from_when_it_came() -> None:
    bench = Bench()
    assert bench.tick() == []
    bench.now = 0.9
    bench.names[1] = "one"
    bench.machine.connected(1, bench.now)
    assert bench.tick(9.9) == []
    assert bench.tick(0.2) == [("one", Disconnect)]


def test_a_stranger_loses_nothing_while_the_coordinator_stands_still() -> None:
    bench = Bench()
    bench.names[1] = "one"
    bench.machine.connected(1, bench.now)
    bench.now = 1000.0
    assert bench.done(bench.machine.tick(bench.now)) == []


def test_strangers_count_as_connections_until_they_go() -> None:
    bench = Bench(limits=CoordinatorLimits(connections=2))
    bench.connect(0, "m0")
    bench.names |= {1: "one", 2: "two"}
    assert bench.done(bench.machine.connected(1, 0.0)) == []
    assert bench.machine.statistics().connections == 2
    assert bench.done(bench.machine.connected(2, 0.0)) == [("two", Disconnect)]
    assert bench.cut(1) == []
    assert bench.machine.statistics().connections == 1
    bench.say(0, m.Bye())
    assert bench.machine.wakes_at() is None


@pytest.mark.parametrize("said", [("", ""), ("x" * 11, ""), ("m", "x" * 11), ("m", "", "x" * 11)])
def test_stranger_with_an_oversized_or_no_introduction_is_refused_and_closed(said: tuple[str, ...]) -> None:
    bench = Bench(limits=CoordinatorLimits(name=10))
    bench.names[1] = "one"
    bench.machine.connected(1, bench.now)
    told, closed = bench.say(1, m.Hello(*said))
    assert refused([told])
    assert closed == ("one", Disconnect)
    assert bench.machine.statistics().connections == 0
    bench.machine.connected(1, bench.now)
    assert bench.say(1, m.Hello("x" * 10, "x" * 10, "x" * 10)) == []


def test_as_much_as_is_allowed_is_relayed_and_taken() -> None:
    bench = Bench(limits=CoordinatorLimits(relayed=10, results=10))
    bench.gang(2)
    assert bench.say(0, m.Relay("m1", b"x" * 10)) == [("m1", m.Relayed("m0", b"x" * 10))]
    assert refused(bench.say(0, m.Relay("m1", b"x" * 11)))
    assert bench.say(0, m.Take(10)) == []
    assert refused(bench.say(0, m.Take(11)))
