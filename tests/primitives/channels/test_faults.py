"""Members and coordinators that die or fall silent: the others get a result or a clear error within the deadline."""

from __future__ import annotations

import errno
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from primitives.channels import coordinators, functions
from primitives.channels.gangs import KEY, RUN, Place, place
from primitives.wire.sides import soon

from treadle.primitives import wire
from treadle.primitives.blocks import Blocks
from treadle.primitives.channels import Gang
from treadle.primitives.channels import member as members
from treadle.primitives.channels.member import Member
from treadle.primitives.channels.messages import Caller, Letter, Noted
from treadle.primitives.stores.store import Store

SIZE = 4


@pytest.fixture(scope="module", params=["tcp", "unix", "mixed", "punching"])
def here(request: pytest.FixtureRequest) -> Iterator[Place]:
    with place() as one:
        yield one.meeting(request.param)


@pytest.mark.parametrize("operation", ["broadcast", "reduce", "shuffle", "barrier"])
def test_a_member_killed_in_any_phase_leaves_results_or_clear_errors(here: Place, operation: str) -> None:
    phases = [("before", 0), ("within", SIZE - 1), ("after", 1)]
    gangs = [here.start(SIZE, functions.survives, operation, phase, victim) for phase, victim in phases]
    for gang, (_, victim) in zip(gangs, phases, strict=True):
        gang[victim].reached("here")
        gang[victim].kill()
    for gang, (phase, victim) in zip(gangs, phases, strict=True):
        ended = [process.end() for process in gang]
        assert ended[victim].error == "killed"
        for rank, one in enumerate(ended):
            if rank != victim:
                assert not one.error, (phase, victim, rank, one)


def test_a_stopped_member_is_lost_when_its_lease_ends(here: Place) -> None:
    gang = here.start(3, functions.survives, "reduce", "before", 1)
    gang[1].reached("here")
    gang[1].kill(signal.SIGSTOP)
    first, last = gang[0].end(), gang[2].end()
    gang[1].kill()
    gang[1].end()
    assert "lost 1" in first.value
    assert "lost 1" in last.value


def test_the_coordinator_may_be_killed_between_and_within_operations() -> None:
    with coordinators.killable(RUN, KEY) as coordinator, place(coordinator.address) as here:
        idle = here.start(3, functions.works_across_a_restart)
        busy = here.start(3, functions.waits_while_the_coordinator_is_replaced)
        for process in idle:
            process.reached("killed and started")
        busy[0].reached("late")
        coordinator.kill()
        coordinator.start()
        for process in (*idle, busy[0]):
            process.go()
        assert [process.end() for process in busy] == [("passed", "", "")] * 3
        for ended in (process.end() for process in idle):
            assert not ended.error, ended
            first, second = ended.value
            assert second[1:] == [1, *first[1:3]], ended


def test_a_peer_that_accepts_and_never_answers_is_reached_through_the_coordinator(here: Place) -> None:
    ended = here.run(3, functions.dials_a_silent_peer)
    assert [one.value for one in ended] == [("small", functions.BIG - 1), None, ("small", functions.BIG - 1)], ended


def test_a_member_without_descriptors_looks_for_callers_again_but_not_at_once(
    here: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[float] = []

    class Full:
        """A listener in a process with too many open files."""

        def __init__(self, listener: socket.socket) -> None:
            self.fileno = listener.fileno
            self.close = listener.close

        def accept(self) -> None:
            calls.append(time.monotonic())
            raise OSError(errno.EMFILE, "too many open files")

    blocks = Blocks(Store.open(f"file://{tmp_path}"), RUN)
    member = Member(Gang(here.address, RUN, "alone", 0, 1), KEY, blocks)
    try:
        fd = max(member._listeners)  # private: the test replaces the TCP socket, which was opened last
        listener, identity = member._listeners[fd]
        monkeypatch.setitem(member._listeners, fd, (Full(listener), identity))
        with socket.create_connection(wire.parse(member.address)[1:]):
            # private: the test waits in the member's thread
            member._loop.wait(lambda: len(calls) > 2 or None, time.monotonic() + 60)
        assert calls[2] - calls[0] > 0.1
    finally:
        member.close()


def test_leaving_member_waits_for_no_answer_of_a_member_that_has_ended(
    here: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(members, "_FAREWELL", 30.0)  # private: a wait would last so long
    blocks = Blocks(Store.open(f"file://{tmp_path}"), RUN)
    gangs = [Gang(here.address, RUN, "two", rank, 2, inbound=here.inbound) for rank in range(2)]
    one, other = (Member(gang, KEY, blocks) for gang in gangs)
    other.close()
    with one._loop.lock:  # private: this is a letter that is sent while the other member leaves
        one._roads.know(other.name, tuple(filter(None, (other.address,))))
        one._roads.send(other.name, Noted("channel", 1))
    one.close()
    assert time.monotonic() < one.leaves_by


def test_call_to_the_former_member_of_an_address_is_refused(here: Place, tmp_path: Path) -> None:
    gang = Gang(here.address, RUN, "alone", 0, 1, one_host=here.one_host)
    member = Member(gang, KEY, Blocks(Store.open(f"file://{tmp_path}"), RUN))
    try:
        for called in (member.name, "alone/0.0123456789ab"):
            with wire.connect(member.address, RUN, KEY, deadline=soon()) as connection:
                connection.send(Caller("alone/1.0123456789ab", called), deadline=soon())
                if called == member.name:
                    connection.send(Letter(1, 0, last=True), deadline=soon())
                    assert connection.receive_head(Letter, soon())[0] == Letter(0, 1)
                else:
                    with pytest.raises(wire.ConnectionClosed):
                        connection.receive_head(Letter, soon())
    finally:
        member.close()
