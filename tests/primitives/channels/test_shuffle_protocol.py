"""Shuffle under any schedule: a round ends with exactly the pieces of its plan, or without a lost member's pieces."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from primitives.channels.simulated import Network, Program, Sim, payload, text

from treadle.primitives.channels import MemberLost
from treadle.primitives.channels.messages import ShufflePlan
from treadle.primitives.channels.protocols.collective import OnLoss
from treadle.primitives.channels.protocols.shuffle import ReceivedRound, ShuffleMachine, role_of

Net = Network[ShuffleMachine]


class Log:
    def __init__(self) -> None:
        self.sent: list[tuple[str, int, ShufflePlan]] = []
        """(producer, round, plan)."""
        self.got: dict[str, list[tuple[int, list[tuple[str, str | None]]]]] = {}
        """Consumer -> (round, pieces)."""
        self.told: list[str] = []


def exchange(log: Log, rounds: int, roles: dict[str, str]) -> object:
    """A user that sends and receives `rounds` times, through all errors, and leaves."""

    def program(net: Net, sim: Sim[ShuffleMachine]) -> Program:
        role = roles.get(sim.name, "both")
        for _ in range(rounds):
            try:
                if role != "consumer":
                    yield from send(log, net, sim)
                if role != "producer":
                    yield from receive(log, net, sim)
            except MemberLost:
                log.told.append(sim.name)
        yield from net.leave(sim)

    return program


def send(log: Log, net: Net, sim: Sim[ShuffleMachine]) -> Program:
    machine = sim.machine
    done = False

    def poll(plan: ShufflePlan) -> bool:
        nonlocal done
        number = machine._sent + 1  # private: the test numbers pieces as the machine does
        pieces = [payload(f"{sim.name}>{consumer} {number} {plan.epoch}") for consumer in plan.consumers]
        sends = machine.send(plan, pieces)
        if sends is not None:
            net.send(sim, sends)
            log.sent.append((sim.name, number, plan))
            done = True
        return True

    while not done:
        plan = yield machine.next_plan
        yield lambda plan=plan: poll(plan)  # type: ignore[misc]


def receive(log: Log, net: Net, sim: Sim[ShuffleMachine]) -> Program:
    received: ReceivedRound = yield sim.machine.receive
    net.send(sim, sim.machine.took(received))
    pieces = [(one, None if piece is None else text(piece)) for one, piece in received.pieces]
    log.got.setdefault(sim.name, []).append((received.round, pieces))


def network(log: Log, roles: list[str], rounds: int, on_loss: OnLoss = "fail") -> Net:
    named = {f"g/{rank}.x": role for rank, role in enumerate(roles)}
    net: Net = Network(lambda name: ShuffleMachine("c", name, on_loss), exchange(log, rounds, named))  # type: ignore[arg-type]
    for sim in [net.join(len(roles), 2, role_of(rank, role)) for rank, role in enumerate(roles)]:
        net.start(sim)
    return net


def check(net: Net, log: Log) -> None:
    stuck = [sim.name for sim in net.members.values() if sim.busy]
    assert not stuck, f"waits for ever: {stuck}"
    survivors = [sent for sent in log.sent if sent[0] not in net.lost]  # a lost member may have sent by another plan
    for (_, one_round, one), (_, other_round, other) in combinations(survivors, 2):
        apart = not {*one.producers, *one.consumers} & {*other.producers, *other.consumers}
        assert one_round != other_round or one == other or apart, "two plans for one round"
    for consumer, rounds in log.got.items():
        numbers = [number for number, _ in rounds]
        assert numbers == sorted(set(numbers)), "a round received twice, or out of order"
        for number, pieces in rounds:
            check_round(log, consumer, number, pieces)


def check_round(log: Log, consumer: str, number: int, pieces: list[tuple[str, str | None]]) -> None:
    epochs = {one: plan.epoch for one, sent, plan in log.sent if sent == number}
    for producer, piece in pieces:
        if piece is not None:
            assert piece == f"{producer}>{consumer} {number} {epochs[producer]}"


roles = st.lists(st.sampled_from(["both", "both", "producer", "consumer"]), min_size=1, max_size=7)


@given(roles, st.integers(1, 3), st.lists(st.integers(0, 1 << 16), max_size=200))
def test_every_consumer_gets_every_piece_in_any_order_of_arrival(
    roles: list[str], rounds: int, choices: list[int]
) -> None:
    log = Log()
    net = network(log, roles, rounds)
    for choice in choices:
        net.step(choice)
    net.drain()
    check(net, log)
    producers = [f"g/{rank}.x" for rank, role in enumerate(roles) if role != "consumer"]
    consumers = [f"g/{rank}.x" for rank, role in enumerate(roles) if role != "producer"]
    for rank, role in enumerate(roles):
        if role == "producer":
            assert len([one for one, _, _ in log.sent if one == f"g/{rank}.x"]) == rounds
    if len(set(roles)) > 1:
        for consumer in consumers:
            assert len(log.got[consumer]) == rounds
    if all(role == "both" for role in roles):
        assert net.counts["data"] == rounds * len(producers) * (len(consumers) - 1)
        for got in log.got.values():
            assert [[one for one, piece in pieces if piece] for _, pieces in got] == [producers] * rounds


@given(roles, st.integers(1, 2), st.integers(0, 1 << 30))
def test_no_member_waits_when_all_leave_at_once(roles: list[str], rounds: int, seed: int) -> None:
    log = Log()
    net = network(log, roles, rounds)
    net.race(seed)
    check(net, log)
    if all(role == "both" for role in roles):
        for got in log.got.values():
            assert [len([one for one, piece in pieces if piece]) for _, pieces in got][:1] == [len(roles)]


moves = st.lists(
    st.one_of(
        st.tuples(st.just("step"), st.integers(0, 1 << 16)),
        st.tuples(st.just("lose"), st.integers(0, 1 << 10)),
        st.tuples(st.just("join"), st.integers(0, 2)),
    ),
    max_size=120,
)


@given(st.integers(2, 6), st.integers(1, 3), st.sampled_from(["fail", "go on"]), moves)
@settings(deadline=None)
def test_no_member_waits_for_ever_when_members_come_and_fail(
    members: int, rounds: int, on_loss: OnLoss, moves: list[tuple[str, int]]
) -> None:
    log = Log()
    net = network(log, ["both"] * members, rounds, on_loss)
    for what, choice in moves:
        present = [sim for sim in net.members.values() if not sim.gone]
        if what == "step":
            for offset in range(3):
                net.step(choice + offset)
        elif what == "join" and len(net.members) < 10:
            net.start(net.join(role=role_of(len(net.members), "both")))
        elif what == "lose" and len(present) > 1:
            net.lose(present[choice % len(present)], choice % 3)
    net.drain()
    check(net, log)
    assert net.lost or not log.told
    assert on_loss == "fail" or not log.told


@pytest.mark.parametrize("size", [2, 3, 8])
def test_a_round_takes_one_message_for_each_pair(size: int) -> None:
    log = Log()
    net = network(log, ["both"] * size, 1)
    net.drain()
    assert net.counts["data"] == size * (size - 1)


def test_a_lost_producer_fails_the_round_where_its_piece_is_missing() -> None:
    log = Log()
    net = network(log, ["both"] * 4, 1)
    victim = list(net.members.values())[2]
    victim.poll = None  # it is in the channel, and never sends
    net.drain()
    net.lose(victim, 0)
    net.drain()
    assert sorted(log.told) == sorted(name for name in net.members if name != victim.name)


def test_blocks_are_given_back_when_every_consumer_has_them() -> None:
    from treadle.primitives.channels.messages import Payload
    from treadle.primitives.encoding.references import Part, Slice

    block = Payload("objects", b"", Slice("b", "objects", Part(0, 64, 1, 0), ("store",)))

    def program(net: Net, sim: Sim[ShuffleMachine]) -> Program:
        plan = yield sim.machine.next_plan
        net.send(sim, sim.machine.send(plan, [block] * 3) or [])
        received = yield sim.machine.receive
        assert not sim.machine.discards
        net.send(sim, sim.machine.took(received))

    net: Net = Network(lambda name: ShuffleMachine("c", name), program)
    for sim in [net.join(3, 2, role_of(rank, "both")) for rank in range(3)]:
        net.start(sim)
    net.drain()
    assert [sim.machine.discards for sim in net.members.values()] == [[block]] * 3
