"""Broadcast under any schedule: each message once, in causal order, at all survivors or at none."""

from __future__ import annotations

from collections.abc import Callable, Collection
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from primitives.channels.simulated import Network, Program, Sim, payload, text

from treadle.primitives.channels import MemberLost
from treadle.primitives.channels.messages import Cast
from treadle.primitives.channels.protocols.broadcast import BroadcastMachine

pytestmark = pytest.mark.usefixtures("few")
Net = Network[BroadcastMachine]


class Log:
    """The messages that each user sent and received, in order: `+a#1` and `a#1`."""

    def __init__(self) -> None:
        self.of: dict[str, list[str]] = {}

    def received(self, name: str) -> list[str]:
        return [entry for entry in self.of.get(name, []) if not entry.startswith("+")]

    def sent(self, name: str) -> list[str]:
        return [entry[1:] for entry in self.of.get(name, []) if entry.startswith("+")]


def talk(log: Log, sends: int) -> object:
    """A user that sends and receives in turn, then receives for ever."""

    def program(net: Net, sim: Sim[BroadcastMachine]) -> Program:
        mine = log.of.setdefault(sim.name, [])
        for number in range(sends):
            if len(mine) % 2:
                yield from receive(net, sim, mine, wait=False)
            yield from send(net, sim, mine, f"{sim.name}#{number}")
        while True:
            yield from receive(net, sim, mine, wait=True)

    return program


def send(net: Net, sim: Sim[BroadcastMachine], mine: list[str], value: str) -> Program:
    def poll() -> bool:
        try:
            net.send(sim, sim.machine.send(payload(value)))
        except MemberLost:
            net.send(sim, sim.machine.send(payload(value)))
        mine.append("+" + value)
        return True

    yield poll


def receive(net: Net, sim: Sim[BroadcastMachine], mine: list[str], *, wait: bool) -> Program:
    def poll() -> Cast | str | None:
        try:
            return sim.machine.receive() or (None if wait else "nothing")
        except MemberLost:
            return "lost"

    cast = yield poll
    if isinstance(cast, Cast):
        mine.append(text(cast.payload))
        net.send(sim, sim.machine.took(cast))


def network(log: Log, members: int, sends: int, fan_out: int = 2) -> Net:
    net: Net = Network(lambda name: BroadcastMachine("c", name), talk(log, sends), near=True)  # type: ignore[arg-type]
    for sim in [net.join(members, fan_out) for _ in range(members)]:
        net.start(sim)
    return net


def check(net: Net, log: Log, first: list[str]) -> None:
    """`first`: the members of the first view."""
    alive = [name for name, sim in net.members.items() if not sim.gone]
    for name in alive:
        got = log.received(name)
        assert len(got) == len(set(got)), "received twice"
        for sender in net.members:
            numbers = [int(value.split("#")[1]) for value in got if value.startswith(sender + "#")]
            assert all(later == earlier + 1 for earlier, later in pairwise(numbers)), "out of order, or one is missing"
    survivors = [name for name in first if name in alive]
    for name in survivors:
        others = {value for other in survivors if other != name for value in log.sent(other)}
        assert others <= set(log.received(name)), "a survivor's message did not arrive"
    for one, other in pairwise(survivors):
        mine = set(log.received(one)) | set(log.sent(one))
        assert mine == set(log.received(other)) | set(log.sent(other)), "some have what others have not"
    for name in alive:
        check_causes(log, name, set(survivors))


def check_causes(log: Log, name: str, survivors: set[str]) -> None:
    """The messages that a sender had received before it sent must arrive before its own."""
    order = {entry.lstrip("+"): place for place, entry in enumerate(log.of[name])}
    for sender in survivors - {name}:
        before: list[str] = []
        for entry in log.of[sender]:
            if entry.startswith("+") and entry[1:] in order:
                known = [order[cause] for cause in before if cause in order]
                assert all(place < order[entry[1:]] for place in known), "an effect before its cause"
            before.append(entry.lstrip("+"))


@given(st.integers(1, 8), st.integers(1, 4), st.integers(1, 3), st.lists(st.integers(0, 1 << 16), max_size=200))
def test_every_member_gets_every_value_once_and_in_causal_order(
    members: int, fan_out: int, sends: int, choices: list[int]
) -> None:
    log = Log()
    net = network(log, members, sends, fan_out)
    for choice in choices:
        net.step(choice)
    net.drain()
    check(net, log, list(net.members))
    assert net.counts["data"] == members * sends * (members - 1)


moves = st.lists(
    st.one_of(
        st.tuples(st.just("step"), st.integers(0, 1 << 16)),
        st.tuples(st.just("lose"), st.integers(0, 1 << 10)),
        st.tuples(st.just("join"), st.just(0)),
        st.tuples(st.just("leave"), st.integers(0, 1 << 10)),
    ),
    max_size=120,
)


@given(st.integers(2, 7), st.integers(1, 3), moves)
@settings(deadline=None)
def test_survivors_agree_on_the_sent_values_despite_joins_and_failures(
    members: int, sends: int, moves: list[tuple[str, int]]
) -> None:
    log = Log()
    net = network(log, members, sends)
    first = list(net.members)
    for what, choice in moves:
        present = [sim for sim in net.members.values() if not sim.gone]
        if what == "step":
            for offset in range(3):
                net.step(choice + offset)
        elif what == "join" and len(net.members) < 12:
            net.start(net.join())
        elif what == "lose" and len(present) > 1:
            net.lose(present[choice % len(present)], choice % 3)
        elif what == "leave" and len(present) > 1:
            net.end(present[choice % len(present)])
    net.drain()
    check(net, log, first)


def receive_all(count: int, early: Collection[int]) -> Callable[[Net, Sim[BroadcastMachine]], Program]:
    """The first member sends `count` values. Each member leaves once it has them, `early` ones before."""

    def program(net: Net, sim: Sim[BroadcastMachine]) -> Program:
        yield lambda: True  # once a view exists
        for number in range(0 if sim.connection in early else count):
            if sim.connection == 0:
                net.send(sim, sim.machine.send(payload(str(number))))
            else:
                net.send(sim, sim.machine.took((yield sim.machine.receive)))
        yield from net.leave(sim)

    return program


@given(st.integers(2, 12), st.integers(1, 3), st.integers(1, 2), st.sets(st.integers(1, 11)), st.integers(0, 1 << 30))
@example(4, 1, 1, set(), 10)
@example(4, 1, 1, {1, 2}, 364)
def test_no_member_misses_a_value_when_several_leave_at_once(
    members: int, fan_out: int, count: int, early: set[int], seed: int
) -> None:
    net: Net = Network(lambda name: BroadcastMachine("c", name), receive_all(count, early), near=True)
    for sim in [net.join(members, fan_out) for _ in range(members)]:
        net.start(sim)
    net.race(seed)
    assert not [sim.name for sim in net.members.values() if sim.busy]


@pytest.mark.parametrize("lost", range(7))
def test_loss_is_reported_once_to_every_waiting_member(lost: int) -> None:
    told: list[tuple[str, tuple[str, ...]]] = []

    def program(net: Net, sim: Sim[BroadcastMachine]) -> Program:
        while True:
            try:
                yield sim.machine.receive
            except MemberLost as error:
                told.append((sim.name, error.lost))

    net: Net = Network(lambda name: BroadcastMachine("c", name), program, near=True)
    for sim in [net.join(7) for _ in range(7)]:
        net.start(sim)
    net.drain()
    net.lose(net.members[f"g/{lost}.x"], 0)
    net.drain()
    victim = f"g/{lost}.x"
    assert sorted(told) == sorted((name, (victim,)) for name in net.members if name != victim)


def test_values_that_all_members_received_are_dropped() -> None:
    log = Log()
    net = network(log, 5, 40)
    net.drain()
    kept = [len(sim.machine._log) for sim in net.members.values()]  # private: the bound of the log has no other sign
    assert max(kept) < 5 * 16 + 1
    assert max(sim.machine.unstable for sim in net.members.values()) <= 16
