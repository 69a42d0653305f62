"""The coordinator's tables, entry by entry."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from treadle.primitives.coordinator import (
    Coordinator,
    CoordinatorLimits,
    Deliver,
    Disconnect,
    Returned,
    SendToConnection,
    StateSaved,
    Timing,
    Tree,
    children,
    depth,
)
from treadle.primitives.coordinator import messages as m
from treadle.primitives.coordinator.machine import _HANDLERS  # private: every handler needs a case
from treadle.primitives.encoding.references import BlockRef
from treadle.primitives.errors import UsageError

CHANNEL = "c"


class Bench:
    """A coordinator, a clock, and the messages to each member."""

    def __init__(self, **known: Any) -> None:
        self.machine = Coordinator(timing=Timing(spacing=0.0), token=lambda: b"t", **known)
        self.now = 0.0
        self.names: dict[int, str] = {}

    def done(self, instructions: list[Any]) -> list[Any]:
        """(member, message), (member, Disconnect) or a Deliver for each instruction."""
        found: list[Any] = []
        for one in instructions:
            match one:
                case SendToConnection(number, message):
                    found.append((self.names[number], message))
                case Disconnect(number):
                    found.append((self.names[number], Disconnect))
                case _:
                    found.append(one)
        return found

    def say(self, number: int, *messages: m.FromMember) -> list[Any]:
        found: list[Any] = []
        for message in messages:
            found += self.done(self.machine.received(number, message, self.now))
        return found

    def connect(self, number: int, name: str) -> list[Any]:
        self.names[number] = name
        found = self.done(self.machine.connected(number, self.now, f"tcp://seen:{number}"))
        return found + self.say(number, m.Hello(name, f"tcp://{name}:1", "host"))

    def cut(self, number: int) -> list[Any]:
        return self.done(self.machine.disconnected(number, self.now))

    def tick(self, later: float = 0.0) -> list[Any]:
        """All ticks that are due within `later` seconds."""
        found, end = self.done(self.machine.tick(self.now)), self.now + later
        while (due := self.machine.wakes_at()) is not None and due <= end:
            self.now = max(due, self.now)
            found += self.done(self.machine.tick(self.now))
        self.now = end
        return found

    def gang(self, size: int, fan_out: int = 2) -> dict[str, tuple[m.Seat, ...]]:
        for number in range(size):
            self.connect(number, f"m{number}")
            self.say(number, m.Join(CHANNEL, size, fan_out))
        return {name: occupants(view) for name, view in self.tick()}


def occupants(view: m.View) -> tuple[m.Seat, ...]:
    return tuple(change.occupant for change in view.changes if change.occupant is not None)


def names(view: m.View) -> list[str]:
    return [seat.member for seat in occupants(view)]


def refused(found: list[Any]) -> bool:
    return [type(message) for _, message in found] == [m.Refused]


def test_every_message_is_handled() -> None:
    assert set(_HANDLERS) == set(get_args(m.FromMember))


# -- trees and channels ----------


@pytest.mark.parametrize(("size", "fan_out", "steps"), [(1, 2, 0), (7, 2, 2), (8, 2, 3), (21, 4, 2), (5, 1, 4)])
def test_tree_is_as_shallow_as_can_be(size: int, fan_out: int, steps: int) -> None:
    assert depth(size, fan_out) == steps
    below = [child for seat in range(size) for child in children(seat, fan_out, size)]
    assert below == list(range(1, size))


def test_only_members_beyond_the_new_end_move() -> None:
    tree = Tree()
    for name in "abcdefgh":
        tree.add(name)
    tree.settle()
    for name in "bdg":
        tree.remove(name)
    tree.add("x")
    assert tree.settle() == [1, 3, 6, 7]
    assert list(tree) == ["a", "x", "c", "h", "e", "f"]


def test_first_view_waits_for_all_parties() -> None:
    bench = Bench()
    for number in range(2):
        bench.connect(number, f"m{number}")
        bench.say(number, m.Join(CHANNEL, 3))
        assert bench.tick() == []
    bench.connect(2, "m2")
    bench.say(2, m.Join(CHANNEL, 3))
    assert [name for name, _ in bench.tick()] == ["m0", "m1", "m2"]


def test_killed_member_is_replaced_by_the_last_and_named() -> None:
    bench = Bench()
    bench.gang(5)
    bench.cut(0)
    views = dict(bench.tick(1.0))
    assert set(views) == {"m1", "m2", "m3", "m4"}
    view = views["m1"]
    assert (view.lost, view.since) == (("m0",), 1)
    assert [(change.seat, change.occupant and change.occupant.member) for change in view.changes] == [
        (0, "m4"),
        (4, None),
    ]


def test_member_that_leaves_in_order_is_not_named() -> None:
    bench = Bench()
    bench.gang(3)
    assert bench.say(1, m.Bye()) == [("m1", Disconnect)]
    assert {view.lost for _, view in bench.tick()} == {()}


def test_reconnect_within_grace_is_not_seen_by_others() -> None:
    bench = Bench()
    bench.gang(3)
    bench.cut(1)
    bench.tick(0.9)
    bench.connect(9, "m1")
    assert bench.say(9, m.Join(CHANNEL, 3, epoch=1, seat=1)) == []
    assert bench.tick(5.0) == []


def test_channel_that_is_not_named_after_a_reconnect_has_lost_the_member() -> None:
    """Its Leave may be lost, or it died just after its Hello. No member waits for it any more."""
    bench = Bench()
    bench.gang(3)
    bench.cut(1)
    bench.connect(9, "m1")
    assert bench.tick(0.9) == []
    assert {name: (view.lost, len(view.changes)) for name, view in bench.tick(0.2)} == {
        "m0": (("m1",), 2),
        "m2": (("m1",), 2),
    }


def test_member_that_was_lost_hears_of_it_when_it_comes_back() -> None:
    bench = Bench()
    bench.gang(3)
    bench.cut(1)
    bench.tick(2.0)
    bench.connect(9, "m1")
    bench.say(9, m.Join(CHANNEL, 3, epoch=1, seat=1))
    view = dict(bench.tick())["m1"]
    assert (view.since, view.lost, names(view)) == (0, ("m1",), ["m0", "m2", "m1"])


def test_silent_member_is_lost_when_its_lease_ends() -> None:
    bench = Bench()
    bench.gang(2)
    bench.tick(6.0)
    bench.say(0, m.Alive())
    found = bench.tick(5.0)
    assert ("m1", Disconnect) in found
    assert [view.lost for name, view in found if name == "m0"] == [("m1",)]


def test_paused_coordinator_loses_no_member() -> None:
    bench = Bench()
    bench.gang(2)
    bench.now += 1000
    assert bench.done(bench.machine.tick(bench.now)) == []
    assert bench.machine.statistics().members == 2


def test_second_connection_of_a_name_closes_the_first_and_fences_it() -> None:
    bench = Bench()
    bench.gang(2)
    assert ("m0", Disconnect) in bench.connect(7, "m0")
    assert bench.say(0, m.Leave(CHANNEL)) == []
    bench.say(7, m.Join(CHANNEL, 2, epoch=1, seat=0))
    bench.cut(0)
    assert bench.tick(5.0) == []


def test_another_fan_out_is_refused() -> None:
    bench = Bench()
    bench.gang(2)
    bench.connect(5, "m5")
    assert refused(bench.say(5, m.Join(CHANNEL, 1, fan_out=3)))


def test_survivors_of_a_coordinator_keep_their_seats_and_epochs_rise() -> None:
    bench = Bench()
    places = [(f"m{seat}", 41, seat) for seat in range(6) if seat != 2]
    for number, (name, epoch, seat) in enumerate(reversed(places)):
        bench.connect(number, name)
        bench.say(number, m.Join(CHANNEL, 6, epoch=epoch, seat=seat))
    assert bench.tick(1.9) == []
    views = dict(bench.tick(0.2))
    assert {view.epoch for view in views.values()} == {42}
    assert names(views["m0"]) == ["m0", "m1", "m5", "m3", "m4"]


def test_ten_thousand_joins_between_two_ticks_are_one_view() -> None:
    bench = Bench()
    for number in range(10_000):
        bench.connect(number, f"m{number}")
        bench.say(number, m.Join(CHANNEL))
    found = bench.machine.tick(bench.now)
    assert len(found) == 10_000
    assert len({id(one.message) for one in found if isinstance(one, SendToConnection)}) == 1


# -- barriers ----------


def waits(bench: Bench, number: int, generation: int = 0, parties: int = 2) -> list[Any]:
    return bench.say(number, m.Wait("b", parties, generation))


def test_barrier_releases_when_the_last_party_arrives() -> None:
    bench = Bench()
    bench.gang(3)
    assert waits(bench, 0, parties=3) == waits(bench, 1, parties=3) == waits(bench, 1, parties=3) == []
    assert waits(bench, 2, parties=3) == [(f"m{number}", m.Released("b", 0)) for number in range(3)]


def test_loss_of_a_party_breaks_the_barrier_for_good() -> None:
    bench = Bench()
    bench.gang(2)
    waits(bench, 0)
    waits(bench, 1)
    waits(bench, 0, 1)
    bench.cut(1)
    assert ("m0", m.Broken("b", 1, ("m1",))) in bench.tick(1.0)
    assert waits(bench, 0, 1) == [("m0", m.Broken("b", 1, ("m1",)))]


def test_lost_release_is_resent() -> None:
    bench = Bench()
    bench.gang(2)
    waits(bench, 0)
    bench.cut(0)
    assert waits(bench, 1) == [("m1", m.Released("b", 0))]
    bench.connect(5, "m0")
    assert waits(bench, 5) == [("m0", m.Released("b", 0))]


def test_party_ahead_proves_that_an_earlier_coordinator_released_the_others() -> None:
    bench = Bench()
    bench.gang(2)
    assert waits(bench, 0, 4) == []
    assert waits(bench, 1, 5) == [("m0", m.Released("b", 4))]
    assert waits(bench, 0, 5) == [("m0", m.Released("b", 5)), ("m1", m.Released("b", 5))]


def test_barrier_takes_no_more_than_its_parties() -> None:
    bench = Bench()
    bench.gang(3)
    waits(bench, 0)
    waits(bench, 1)
    assert refused(waits(bench, 2))
    assert refused(waits(bench, 0, 1, parties=3))


def test_parties_that_meet_elsewhere_hear_of_a_loss_and_of_nothing_else() -> None:
    bench = Bench()
    bench.gang(3)
    for number in range(3):
        assert bench.say(number, m.Wait("b", 3, 0, elsewhere=True)) == []
    assert refused(bench.say(0, m.Wait("b", 3, 0)))
    assert refused(bench.say(0, m.Wait("b", 3, 1, elsewhere=True)))
    assert bench.say(1, m.Bye())[1:] == [("m0", m.Broken("b", 0, ("m1",))), ("m2", m.Broken("b", 0, ("m1",)))]


def test_idle_barrier_gives_way_to_a_new_one_and_its_parties_go_on() -> None:
    bench = Bench(limits=CoordinatorLimits(barriers=1))
    bench.gang(2)
    waits(bench, 0)
    assert refused(bench.say(1, m.Wait("other", 1, 0)))
    waits(bench, 1)
    assert bench.say(1, m.Wait("other", 1, 0)) == [("m1", m.Released("other", 0))]
    assert waits(bench, 0, 1) == []
    assert len(waits(bench, 1, 1)) == 2


# -- blocks, tasks, paths ----------


def test_blocks_of_a_lost_member_vanish() -> None:
    bench = Bench()
    bench.gang(3)
    bench.say(0, m.Announce(("x", "y")))
    bench.say(1, m.Announce(("x",)), m.Announce(("z",)), m.Withdraw(("z", "never")))
    bench.cut(0)
    bench.tick(1.0)
    for block, members in (("x", ["m1"]), ("y", []), ("z", [])):
        ((_, found),) = bench.say(2, m.Locate(block))
        assert [seat.member for seat in found.seats] == members


def test_blocks_not_announced_after_a_reconnect_are_its_no_more() -> None:
    """It may have released them while it was disconnected."""
    bench = Bench()
    bench.gang(2)
    bench.say(0, m.Announce(("x", "y")))
    bench.cut(0)
    bench.connect(5, "m0")
    bench.say(5, m.Announce(("y",)))
    for block, members in (("x", []), ("y", ["m0"])):
        ((_, found),) = bench.say(1, m.Locate(block))
        assert [seat.member for seat in found.seats] == members
    assert bench.machine.statistics().blocks == 1


def test_task_of_a_lost_member_goes_to_the_next_and_its_late_result_is_refused() -> None:
    bench = Bench()
    bench.gang(2)
    bench.say(0, m.Take())
    ((_, first),) = bench.done(bench.machine.offer("t", b"body", bench.now))
    bench.say(1, m.Take())
    bench.cut(0)
    (again,) = [message for _, message in bench.tick(1.0) if isinstance(message, m.AssignedTask)]
    assert again.epoch > first.epoch
    bench.connect(5, "m0")
    assert refused(bench.say(5, m.Finished("t", first.epoch, b"late")))
    assert bench.say(1, m.Finished("t", again.epoch, b"r")) == [
        ("m1", m.Accepted("t", again.epoch)),
        Deliver("t", "m1", b"r"),
    ]
    assert bench.say(1, m.Finished("t", again.epoch, b"r")) == [("m1", m.Accepted("t", again.epoch))]


def test_task_for_one_member_waits_for_it_and_goes_to_no_other() -> None:
    bench = Bench()
    bench.connect(0, "m0")
    bench.say(0, m.Take())
    assert bench.done(bench.machine.offer("t", b"body", bench.now, "m1")) == []
    assert not bench.machine.present("m1")
    bench.connect(1, "m1")
    assert bench.machine.present("m1")
    ((member, task),) = bench.say(1, m.Take())
    assert (member, task.task, task.body) == ("m1", "t", b"body")
    assert Deliver("t", "m1", b"r") in bench.say(1, m.Finished("t", task.epoch, b"r"))


def test_task_for_one_member_comes_before_tasks_for_any() -> None:
    bench = Bench()
    bench.machine.offer("any", b"", bench.now)
    bench.machine.offer("own", b"", bench.now, "m0")
    bench.connect(0, "m0")
    assert [task.task for _, task in bench.say(0, m.Take())] == ["own"]
    assert [task.task for _, task in bench.say(0, m.Take(2))] == ["any"]


@pytest.mark.parametrize("end", ["lost", "left", "given up"])
def test_task_for_one_member_goes_back_to_its_owner(end: str) -> None:
    bench = Bench()
    bench.connect(0, "m0")
    bench.connect(1, "m1")
    bench.say(1, m.Take(5))
    bench.machine.offer("waiting", b"", bench.now, "m0")
    ((_, task),) = bench.say(0, m.Take())
    bench.machine.offer("next", b"", bench.now, "m0")
    if end == "lost":
        bench.cut(0)
        found = bench.tick(1.0)
    else:
        found = bench.say(0, m.Bye() if end == "left" else m.GiveUp("waiting", task.epoch))
    assert Returned("waiting", "m0", lost=end == "lost") in found
    assert (Returned("next", "m0", lost=False) in found) == (end != "given up")
    assert not [one for one in found if isinstance(one, tuple) and isinstance(one[1], m.AssignedTask)], (
        "nobody else gets it"
    )


def test_withdrawn_task_has_no_holder_and_the_former_holder_is_notified() -> None:
    bench = Bench()
    bench.connect(0, "m0")
    for name, member in (("held", "m0"), ("own", "m0"), ("any", "")):
        bench.machine.offer(name, b"", bench.now, member)
        if name == "held":
            ((_, task),) = bench.say(0, m.Take())
    assert bench.done(bench.machine.withdraw("held", bench.now)) == [("m0", m.Withdrawn("held", task.epoch))]
    for name in ("own", "any", "held", "never there"):
        assert bench.done(bench.machine.withdraw(name, bench.now)) == []
    assert refused(bench.say(0, m.Finished("held", task.epoch, b"late")))
    assert bench.say(0, m.Take(5)) == []
    assert bench.machine.statistics().tasks == 0


def test_a_copy_of_a_member_is_refused_while_the_member_is_there() -> None:
    bench = Bench()
    bench.connect(0, "m0")
    bench.names[1] = "copy"
    bench.done(bench.machine.connected(1, bench.now))
    told, closed = bench.say(1, m.Hello("m0", "", "another host"))
    assert refused([told])
    assert closed == ("copy", Disconnect)
    assert bench.say(0, m.Alive()) == [("m0", m.Alive())], "the first one is still connected"
    bench.cut(0)
    bench.names[2] = "copy"
    bench.done(bench.machine.connected(2, bench.now))
    assert bench.say(2, m.Hello("m0", "", "another host")) == [], "it takes the place of one that is away"


def test_member_is_dismissed_by_its_owner() -> None:
    bench = Bench()
    bench.connect(0, "m0")
    assert bench.done(bench.machine.tell("m0", m.Dismissed(), bench.now)) == [("m0", m.Dismissed())]
    assert bench.done(bench.machine.tell("m1", m.Dismissed(), bench.now)) == []
    bench.say(0, m.Bye())
    assert not bench.machine.present("m0")


def test_task_is_offered_once() -> None:
    bench = Bench()
    bench.machine.offer("t", b"", 0.0)
    with pytest.raises(UsageError):
        bench.machine.offer("t", b"", 0.0)


def test_both_sides_get_the_seen_address_to_dial() -> None:
    bench = Bench()
    bench.gang(2)
    (_, one), (_, two) = bench.say(0, m.Reach("m1"))
    assert (one.member, one.address, two.member, two.address) == ("m1", "tcp://seen:1", "m0", "tcp://seen:0")
    assert (one.token, one.delay) == (two.token, two.delay)


def test_relay_reaches_connected_members_only() -> None:
    bench = Bench()
    bench.gang(2)
    assert bench.say(0, m.Relay("m1", b"x")) == [("m1", m.Relayed("m0", b"x"))]
    bench.cut(1)
    assert refused(bench.say(0, m.Relay("m1", b"x")))
    assert refused(bench.say(0, m.Reach("nobody")))


def test_count_returns_the_number_of_present_members() -> None:
    bench = Bench()
    bench.gang(2)
    waits(bench, 0)
    assert bench.say(0, m.Count(CHANNEL), m.Count("b"), m.Count("?")) == [
        ("m0", m.Counted(CHANNEL, 2, 2)),
        ("m0", m.Counted("b", 1, 2)),
        ("m0", m.Counted("?", 0, 0)),
    ]


# -- limits ----------


@pytest.mark.parametrize(
    "message",
    [
        m.Join("x" * 2000),
        m.Join("d", parties=0),
        m.Join("d", fan_out=10**6),
        m.Join("d", epoch=2**60),
        m.Join("d", epoch=-1),
        m.Wait("b", 10**9, 0),
        m.Wait("b", 2, 2**60),
        m.Announce(("x" * 2000,)),
        m.Announce(tuple(map(str, range(11)))),
        m.Relay("m1", b"x" * 100_000),
        m.Take(-1),
        m.Finished("nothing", 3),
        m.Hello("another", ""),
    ],
    ids=lambda message: type(message).__name__,
)
def test_invalid_claim_is_refused_and_changes_nothing(message: m.FromMember) -> None:
    bench = Bench(limits=CoordinatorLimits(blocks=10))
    bench.gang(2)
    before = bench.machine.statistics()
    assert refused(bench.say(0, message))
    assert bench.machine.statistics() == before


def test_stranger_that_says_nothing_or_something_else_is_closed() -> None:
    bench = Bench()
    bench.names |= {1: "one", 2: "two"}
    bench.machine.connected(1, 0.0)
    assert bench.say(1, m.Alive()) == [("one", Disconnect)]
    bench.machine.connected(2, 0.0)
    assert bench.tick(10.0) == [("two", Disconnect)]
    assert bench.machine.statistics().connections == 0


def test_connections_are_limited() -> None:
    bench = Bench(limits=CoordinatorLimits(connections=1))
    bench.connect(0, "m0")
    bench.names[1] = "m1"
    assert bench.done(bench.machine.connected(1, 0.0)) == [("m1", Disconnect)]


def test_nothing_is_left_of_a_gang_that_has_gone() -> None:
    bench = Bench()
    bench.gang(3)
    for number in range(3):
        waits(bench, number, parties=3)
        bench.say(number, m.Announce((f"x{number}",)), m.Take())
    bench.say(0, m.Bye())
    bench.cut(1)
    bench.tick(20.0)
    assert bench.machine.statistics() == Coordinator().statistics()
    assert bench.machine.wakes_at() is None


def test_state_of_a_checkpoint_goes_to_the_owner_and_its_answer_to_the_member() -> None:
    bench = Bench()
    bench.connect(0, "gang/0.a")
    state = BlockRef("checkpoints/s/1.0", "objects", 1, (), ("store",))
    assert bench.machine.received(0, m.SaveState(1, state), bench.now) == [StateSaved("gang/0.a", 1, state)]
    answer = m.Checkpointed(1)
    assert bench.done(bench.machine.tell("gang/0.a", answer, bench.now)) == [("gang/0.a", answer)]
    bench.cut(0)
    assert bench.done(bench.machine.tell("gang/0.a", answer, bench.now)) == [], "it repeats its state when it is back"
