"""The cost of a join, a leave and a loss at the coordinator does not grow with the number of members."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from primitives.channels.simulated import Network, Program, Sim

from treadle.primitives.channels.protocols.broadcast import BroadcastMachine
from treadle.primitives.coordinator.messages import Bye

SIZES = (40, 160, 320)
Net = Network[BroadcastMachine]


def idle(_net: Net, _sim: Sim[BroadcastMachine]) -> Program:
    return
    yield


def gang(size: int) -> Net:
    net: Net = Network(lambda name: BroadcastMachine("c", name, "go on"), idle, near=True)
    for _ in range(size):
        net.join(size)
    return net


def settle(net: Net) -> None:
    """Deliver all messages."""
    while net.links or any(net.views.values()):
        net.step(0)


def leave(net: Net) -> None:
    sim = net.members["g/5.x"]
    sim.gone = True
    net.say(sim, Bye())


CHANGES: dict[str, Callable[[Net], object]] = {
    "join": lambda net: net.join(),
    "leave": leave,
    "loss": lambda net: net.lose(net.members["g/5.x"], 0),
}
MOST = {"join": 2, "leave": 7, "loss": 7}
"""A member in the middle has a parent and two children; the last member takes its seat and leaves its own parent."""


@pytest.mark.parametrize("what", CHANGES)
def test_coordinator_sends_a_change_to_as_few_members_in_a_gang_of_any_size(what: str) -> None:
    found = []
    for size in SIZES:
        net = gang(size)
        settle(net)
        assert net.counts["views"] == size, "each member gets one view when it joins"
        assert net.counts["bytes"] < 200 * size
        net.counts.clear()
        CHANGES[what](net)
        settle(net)
        present = [sim.machine for sim in net.members.values() if not sim.gone]
        assert len({machine.epoch for machine in present}) == 1, "all members enter the new view"
        assert net.counts["control"] <= size + 3 * MOST[what], "the epoch passes each link of the tree once or twice"
        found.append(net.counts["views"])
        assert net.counts["bytes"] < 300 * MOST[what]
        if what == "loss":
            assert all(machine.roster.lost == ("g/5.x",) for machine in present)
    assert found == [found[0]] * len(SIZES)
    assert found[0] <= MOST[what]
