"""Reduce under any schedule: every call ends, and each contribution is in one result, or a loss failed the round."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from primitives.channels.simulated import Network, Program, Sim, payload, text

from treadle.primitives.channels import MemberLost, ReduceFailed
from treadle.primitives.channels.protocols.collective import OnLoss
from treadle.primitives.channels.protocols.membership import Roster, Send
from treadle.primitives.channels.protocols.reduce import Fold, PassDown, PassUp, ReducedRound, ReduceMachine
from treadle.primitives.coordinator import tree
from treadle.primitives.coordinator.messages import Seat

pytestmark = pytest.mark.usefixtures("few")
Net = Network[ReduceMachine]


class Log:
    """The result and the end of each user's calls."""

    def __init__(self) -> None:
        self.ended: list[tuple[str, ReducedRound | Exception]] = []

    def results(self) -> list[list[str]]:
        return [r.value.split() for _, r in self.ended if isinstance(r, ReducedRound) and r.is_root]

    def without_error(self) -> set[str]:
        return {value for value, end in self.ended if isinstance(end, ReducedRound)}


def calls(log: Log, count: int, everywhere: bool) -> Any:
    """A user that reduces `count` times, through all errors, and leaves."""

    def program(net: Net, sim: Sim[ReduceMachine]) -> Program:
        for number in range(count):
            value = f"{sim.name}#{number}"
            try:
                log.ended.append((value, (yield from one_round(net, sim, value, everywhere))))
            except (MemberLost, ReduceFailed) as error:
                log.ended.append((value, error))
        yield from net.leave(sim)

    return program


def one_round(net: Net, sim: Sim[ReduceMachine], value: str, everywhere: bool) -> Any:
    machine = sim.machine

    def begin() -> bool:
        net.send(sim, machine.contribute(value, everywhere=everywhere))
        return True

    yield begin
    while True:
        step = yield machine.next
        if isinstance(step, ReducedRound):
            return step
        if isinstance(step, Fold):
            net.send(sim, machine.folded(step.ticket, " ".join([step.left, *map(text, step.right)])))
        if isinstance(step, PassUp):
            net.send(sim, machine.passed_up(step.ticket, payload(step.value)))
        if isinstance(step, PassDown):
            net.send(sim, machine.passed_down(step.ticket, payload(step.value)))


def network(
    log: Log, members: int, rounds: int, fan_out: int = 2, on_loss: OnLoss = "fail", *, everywhere: bool = False
) -> Net:
    net: Net = Network(lambda name: ReduceMachine("c", name, on_loss), calls(log, rounds, everywhere), near=True)
    for sim in [net.join(members, fan_out) for _ in range(members)]:
        net.start(sim)
    return net


def check(net: Net, log: Log, *, lost: bool, everywhere: bool = False) -> None:
    for value, end in log.ended if everywhere else ():
        if isinstance(end, ReducedRound):
            result = end.value if end.is_root else text(end.payload)  # type: ignore[arg-type]
            assert value in result.split(), "every member gets the result of its round"
    stuck = [sim.name for sim in net.members.values() if sim.busy]
    assert not stuck, f"waits for ever: {stuck}"
    everything = [value for result in log.results() for value in result]
    assert len(everything) == len(set(everything)), "a contribution was counted twice"
    assert lost or not [end for _, end in log.ended if isinstance(end, Exception)]
    if not any(sim.gone and sim.name in net.lost for sim in net.members.values()):
        unseen = set(everything) - log.without_error()
        assert log.without_error() <= set(everything)
        assert {value.partition("#")[0] for value in unseen} <= net.ended, "only users that left miss their result"
    for result in log.results():
        assert len({value.split("#")[0] for value in result}) == len(result), "two rounds of one member in one result"


@given(
    st.integers(1, 9),
    st.integers(1, 4),
    st.integers(1, 3),
    st.lists(st.integers(0, 1 << 16), max_size=200),
    st.booleans(),
)
def test_every_order_of_delivery_gives_one_result_for_each_round(
    members: int, fan_out: int, rounds: int, choices: list[int], everywhere: bool
) -> None:
    log = Log()
    net = network(log, members, rounds, fan_out, everywhere=everywhere)
    for choice in choices:
        net.step(choice)
    net.drain()
    check(net, log, lost=False, everywhere=everywhere)
    assert sorted(map(len, log.results())) == [members] * rounds or rounds > 1
    assert sum(map(len, log.results())) == members * rounds


@given(st.integers(1, 12), st.integers(1, 3), st.integers(1, 2), st.integers(0, 1 << 30), st.booleans())
def test_no_member_waits_when_all_leave_at_once(
    members: int, fan_out: int, rounds: int, seed: int, everywhere: bool
) -> None:
    log = Log()
    net = network(log, members, rounds, fan_out, everywhere=everywhere)
    net.race(seed)
    check(net, log, lost=False, everywhere=everywhere)
    assert sorted(map(len, log.results())) == [members] * rounds or rounds > 1


@pytest.mark.parametrize(("members", "fan_out"), [(1, 2), (2, 2), (8, 2), (64, 2), (64, 4), (100, 10)])
def test_a_round_takes_one_data_message_for_each_member_but_the_root(members: int, fan_out: int) -> None:
    log = Log()
    net = network(log, members, 1, fan_out)
    net.race(members)
    assert net.counts["data"] == members - 1
    assert max(_depth(net, name) for name in net.members) <= math.ceil(math.log(max(members, 2), fan_out))


@given(st.integers(1, 9), st.integers(1, 4), st.integers(0, 1 << 30))
def test_values_are_folded_in_the_order_of_the_seats(members: int, fan_out: int, seed: int) -> None:
    log = Log()
    net = network(log, members, 1, fan_out)
    net.race(seed)

    def below(seat: int) -> list[str]:
        return [f"g/{seat}.x#0", *(name for child in tree.children(seat, fan_out, members) for name in below(child))]

    assert log.results() == [below(0)]


@pytest.mark.parametrize("members", [1, 2, 9])
def test_a_result_for_all_takes_at_most_two_data_messages_for_each_member(members: int) -> None:
    log = Log()
    net = network(log, members, 3, everywhere=True)
    net.race(members)
    assert net.counts["data"] <= 3 * 2 * (members - 1), "at the end, a result may arrive with `Leaving`"
    check(net, log, lost=False, everywhere=True)


def _depth(net: Net, name: str) -> int:
    parent = net.members[name].machine.parent
    return 0 if parent is None else 1 + _depth(net, parent)


moves = st.lists(
    st.one_of(
        st.tuples(st.just("step"), st.integers(0, 1 << 16)),
        st.tuples(st.just("lose"), st.integers(0, 1 << 10)),
        st.tuples(st.just("join"), st.just(0)),
        st.tuples(st.just("leave"), st.integers(0, 1 << 10)),
    ),
    max_size=150,
)


@given(st.integers(2, 7), st.integers(1, 4), st.sampled_from(["fail", "go on"]), moves, st.booleans())
@settings(deadline=None)
def test_no_member_waits_for_ever_when_members_come_go_and_fail(
    members: int, rounds: int, on_loss: OnLoss, moves: list[tuple[str, int]], everywhere: bool
) -> None:
    log = Log()
    net = network(log, members, rounds, 2, on_loss, everywhere=everywhere)
    for what, choice in moves:
        present = [sim for sim in net.members.values() if not sim.gone]
        if what == "step":
            for offset in range(3):
                net.step(choice + offset)
        elif what == "join" and len(net.members) < 12:
            net.start(net.join())
        elif what == "lose" and len(present) > 1:
            net.lose(present[choice % len(present)], choice % 3)
        elif what == "leave" and present:
            net.end(present[choice % len(present)])
    net.drain()
    check(net, log, lost=bool(net.lost) and on_loss == "fail", everywhere=everywhere)


def test_a_loss_fails_the_round_at_every_survivor_once() -> None:
    log = Log()
    net = network(log, 5, 2)
    victim = list(net.members.values())[3]
    victim.poll = None  # it is in the channel, and never takes part
    net.drain()
    net.lose(victim, 0)
    net.drain()
    failed = [value for value, end in log.ended if isinstance(end, MemberLost)]
    assert len(failed) == 4
    assert [len(result) for result in log.results()] == [4]
    assert not [sim for sim in net.members.values() if sim.busy]


@given(st.integers(2, 6), st.integers(0, 59), st.integers(0, 2), st.lists(st.integers(0, 1 << 16), max_size=150))
@example(members=3, steps=4, arrives=0, choices=[1, 0])
def test_a_loss_fails_the_first_round_at_every_survivor_or_at_none(
    members: int, steps: int, arrives: int, choices: list[int]
) -> None:
    """None: the loss comes before the members agreed on a first round."""
    log = Log()
    net = network(log, members, 2)
    victim = list(net.members.values())[steps % members]
    victim.poll = None
    for choice in choices[:steps]:
        net.step(choice)
    net.lose(victim, arrives)
    for choice in choices[steps:]:
        net.step(choice)
    net.drain()
    assert not [sim for sim in net.members.values() if sim.busy]
    first = [type(end) for value, end in log.ended if value.endswith("#0")]
    assert first in ([MemberLost] * (members - 1), [ReducedRound] * (members - 1))
    assert not [end for value, end in log.ended if value.endswith("#1") and isinstance(end, Exception)]


@given(st.integers(2, 9), st.integers(1, 4), st.integers(0, 1 << 30))
@example(members=4, fan_out=2, seed=0)
def test_a_failed_round_reaches_a_member_whose_first_agreement_comes_later(
    members: int, fan_out: int, seed: int
) -> None:
    """Members that leave after the failure cause a new view. It may overtake the agreement of the first view."""
    log = Log()
    net = network(log, members, 1, fan_out)
    for sim in net.members.values():
        sim.machine.folded = partial(_fails, sim.machine)  # type: ignore[method-assign]
    net.race(seed)
    assert [type(end) for _, end in log.ended] == [ReduceFailed] * members


def _fails(machine: ReduceMachine, ticket: int, value: Any) -> list[Send]:
    return machine.give_up("reduce raised ValueError")


def test_a_function_that_raises_fails_the_round_everywhere() -> None:
    log = Log()
    net = network(log, 6, 2)
    broken = list(net.members.values())[1]
    first = broken.machine.give_up

    def raises(step: Any) -> None:
        net.send(broken, first("reduce raised ValueError at member 1: no"))

    original = broken.machine.folded

    def folded(ticket: int, value: Any) -> Any:
        broken.machine.folded = original  # type: ignore[method-assign]
        raises(ticket)
        return []

    broken.machine.folded = folded  # type: ignore[method-assign]
    net.drain()
    failed = [end for _, end in log.ended if isinstance(end, ReduceFailed)]
    assert len(failed) == 6
    assert [len(result) for result in log.results()] == [6]


def test_a_result_of_a_lost_root_reaches_members_to_which_it_was_not_sent() -> None:
    """The round after it fails for the loss, and must not hide it."""
    machines = {name: ReduceMachine("c", name) for name in "abc"}

    def deliver(sender: str, sends: list[Send]) -> None:
        for target, message in sends:
            if target in machines:
                deliver(target, machines[target].message(sender, message))

    def enter(names: str, epoch: int, lost: tuple[str, ...] = ()) -> None:
        roster = Roster(epoch, {seat: Seat(name, "") for seat, name in enumerate(names)}, 2, lost)
        sends = {name: machines[name].view(roster) for name in names}
        for name in names:
            deliver(name, sends[name])

    enter("abc", 1)
    for name in "bca":
        machine = machines[name]
        deliver(name, machine.contribute(name, everywhere=True))
        while (step := machine.next()) is not None:
            if isinstance(step, Fold):
                deliver(name, machine.folded(step.ticket, "".join([step.left, *map(text, step.right)])))
            elif isinstance(step, PassUp):
                deliver(name, machine.passed_up(step.ticket, payload(step.value)))
            elif isinstance(step, PassDown):
                to_all = machine.passed_down(step.ticket, payload(step.value))
                deliver(name, [send for send in to_all if send.member == "b"])
                break
    del machines["a"]
    enter("bc", 2, ("a",))
    for name in "bc":
        found = machines[name].outcome()
        assert found is not None
        assert text(found.payload) == "abc"  # type: ignore[arg-type]
    for name in "bc":
        deliver(name, machines[name].contribute(name, everywhere=True))
        with pytest.raises(MemberLost):
            machines[name].next()
