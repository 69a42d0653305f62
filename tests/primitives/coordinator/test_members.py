"""The lifetime of members, and the effects of a member's new connection."""

from __future__ import annotations

from primitives.coordinator.test_claims import Bench, refused, waits

from treadle.primitives.coordinator import CoordinatorLimits, Disconnect
from treadle.primitives.coordinator import messages as m


def test_a_member_that_says_no_more_than_its_name_has_its_lease() -> None:
    bench = Bench()
    assert bench.connect(0, "m") == []
    assert bench.tick(9.9) == []
    assert bench.tick(0.2) == [("m", Disconnect)]


def test_a_member_whose_connection_ends_has_its_grace_however_long_it_was_silent() -> None:
    bench = Bench()
    bench.connect(0, "m0")
    bench.tick(9.5)
    bench.cut(0)
    bench.tick(0.9)
    assert bench.machine.present("m0")
    bench.tick(0.2)
    assert not bench.machine.present("m0")


def test_returning_member_learns_its_tasks_and_gets_no_more_unasked() -> None:
    bench = Bench()
    bench.connect(0, "m0")
    bench.say(0, m.Take(2))
    (given,) = bench.done(bench.machine.offer("t", b"body", bench.now))
    assert bench.connect(1, "m0") == [("m0", Disconnect), given]
    assert bench.done(bench.machine.offer("more", b"", bench.now)) == []


def test_a_broken_barrier_is_forgotten_in_time_though_parties_are_still_there() -> None:
    bench = Bench()
    bench.gang(2)
    for number in range(2):
        waits(bench, number, parties=3)
    bench.say(1, m.Bye())
    for _ in range(4):
        assert bench.machine.statistics().barriers == 1
        bench.tick(9.0)
        bench.say(0, m.Alive())
    assert bench.machine.statistics().barriers == 0


def test_reconnecting_member_keeps_its_seat_for_the_grace_of_its_last_connection() -> None:
    bench = Bench()
    bench.gang(3)
    bench.cut(1)
    bench.connect(9, "m1")
    bench.tick(0.5)
    bench.cut(9)
    assert bench.tick(0.9) == []
    assert {view.lost for _, view in bench.tick(0.2)} == {("m1",)}


def test_task_offered_while_a_member_is_away_goes_to_a_present_one() -> None:
    bench = Bench()
    bench.connect(0, "m0")
    bench.say(0, m.Take())
    bench.cut(0)
    assert bench.done(bench.machine.offer("t", b"", bench.now)) == []
    bench.connect(1, "m1")
    assert [task.task for _, task in bench.say(1, m.Take())] == ["t"]


def test_member_is_refused_a_route_to_itself() -> None:
    bench = Bench()
    bench.connect(0, "m0")
    assert refused(bench.say(0, m.Reach("m0")))
    assert refused(bench.say(0, m.Relay("m0", b"x")))


def test_sender_learns_that_a_member_has_ended_but_not_that_one_is_away() -> None:
    bench = Bench()
    for number in range(4):
        bench.connect(number, f"m{number}")
    bench.say(1, m.Bye())
    bench.cut(2)
    bench.tick(1.1)  # m2 is lost
    bench.cut(3)
    found = [answer for other in (1, 2, 3) for _, answer in bench.say(0, m.Relay(f"m{other}", b"x"))]
    assert [answer.ended for answer in found] == [True, True, False]
    bench.connect(5, "m2")
    assert bench.say(0, m.Relay("m2", b"x")) == [("m2", m.Relayed("m0", b"x"))]


def test_coordinator_remembers_a_bounded_number_of_former_members() -> None:
    bench = Bench(limits=CoordinatorLimits(ended=2))
    bench.connect(0, "m0")
    for number in range(1, 4):
        bench.connect(number, f"m{number}")
        bench.say(number, m.Bye())
    found = [answer for other in (1, 2, 3) for _, answer in bench.say(0, m.Relay(f"m{other}", b"x"))]
    assert [answer.ended for answer in found] == [False, True, True]
