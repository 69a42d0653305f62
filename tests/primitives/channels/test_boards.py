"""Barriers of members that share a host's memory: all pass or none does, after any death, and nothing is left
behind."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import signal
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from primitives.channels import coordinators, functions
from primitives.channels.gangs import KEY, RUN, Place, place
from primitives.wire import sides
from primitives.wire.sides import serving, soon

from treadle.primitives import wire
from treadle.primitives.blocks import Blocks
from treadle.primitives.channels import Barrier, BroadcastChannel, Gang
from treadle.primitives.channels.io.shared_barrier import Bell, Board, Boards
from treadle.primitives.channels.member import Member
from treadle.primitives.coordinator.messages import Bye, Count, Counted, FromMember, Leave
from treadle.primitives.errors import StoreError
from treadle.primitives.stores.shared_memory import SHARED_MEMORY, HostFolder
from treadle.primitives.stores.store import Store

SIZE = 4


@pytest.fixture(scope="module")
def here() -> Iterator[Place]:
    with place() as one:
        yield one._replace(one_host=True)


# -- boards and bells ----------


@given(arrivals=st.lists(st.integers(0, SIZE - 1), max_size=24))
def test_a_generation_is_complete_for_all_once_all_have_arrived(arrivals: list[int]) -> None:
    """A member that has arrived arrives again only after all have."""
    with gang() as members:
        boards = [member.open("epoch") for member in members]
        arrived = [0] * SIZE
        for rank in arrivals:
            if arrived[rank] == min(arrived):
                boards[rank].arrive(arrived[rank])
                arrived[rank] += 1
            for board in boards:
                for generation in range(max(arrived) + 1):
                    there = sum(count > generation for count in arrived)
                    assert board.present(generation) == there
                    assert bool(board.met(generation)) == (there == SIZE)


STEPS = st.tuples(
    st.sampled_from(["arrive", "arrive", "look", "doubt"]), st.integers(0, SIZE - 1), st.integers(0, SIZE - 1)
)


@given(steps=st.lists(STEPS, max_size=60))
def test_all_members_pass_or_none_for_every_reported_loss(steps: list[tuple[str, int, int]]) -> None:
    """A member that was reported as lost, rightly or not, goes on."""
    with gang() as members, settled(0.0):
        boards = [member.open("epoch") for member in members]
        passed, waits = [0] * SIZE, [False] * SIZE
        found: defaultdict[int, set[bool]] = defaultdict(set)

        def look(rank: int) -> None:
            met = boards[rank].met(passed[rank]) if waits[rank] else None
            if met is not None:
                found[passed[rank]].add(met)
                passed[rank], waits[rank] = passed[rank] + met, False

        for what, rank, other in steps:
            if what == "doubt":
                boards[rank].doubt(other)
            elif what == "look":
                look(rank)
            elif not waits[rank]:
                boards[rank].arrive(passed[rank])
                waits[rank] = True
        for rank in range(SIZE):
            look(rank)
        assert all(len(ends) == 1 for ends in found.values()), found
        if any(what == "doubt" for what, _, _ in steps):
            assert not any(waits), "nobody waits for ever"


def test_silent_member_does_not_pass_alone() -> None:
    with gang() as members, settled(0.0):
        boards = [member.open("epoch") for member in members]
        for board in boards[:-1]:
            board.arrive(0)
        boards[0].doubt(SIZE - 1)
        with edge_triggered(members[1].bell) as waiting:
            assert boards[0].met(0) is False
            assert waiting.poll(0), "the others need not wait until they look"
        boards[-1].arrive(0)
        assert [board.met(0) for board in boards] == [False] * SIZE
        assert {board.gone for board in boards} == {SIZE - 1}


def test_member_waits_until_all_see_the_counts_and_no_other_decides() -> None:
    with gang() as members, settled(1000.0):
        first, *others = [member.open("epoch") for member in members]
        for board in (first, *others[:-1]):
            board.arrive(0)
        first.doubt(SIZE - 1)
        assert first.met(0) is None
        with settled(0.0):
            fcntl.flock(others[0]._file, fcntl.LOCK_EX)  # private: the test takes the lock of a board
            assert first.met(0) is None
            fcntl.flock(others[0]._file, fcntl.LOCK_UN)
        others[-1].arrive(0)
        assert first.met(0)
        assert all(board.met(0) for board in others)


def test_only_the_last_to_arrive_rings_and_all_are_woken() -> None:
    with gang() as members, contextlib.ExitStack() as stack:
        waiting = [stack.enter_context(edge_triggered(member.bell)) for member in members]
        boards = [member.open("epoch") for member in members]
        for generation in range(3):
            for board in boards:
                assert [one.poll(0) for one in waiting] == [[]] * SIZE
                board.arrive(generation)
            assert [len(one.poll(0)) for one in waiting] == [1] * SIZE


def test_once_all_have_met_no_file_is_left_and_they_meet_on() -> None:
    with gang() as members:
        boards = [member.open("epoch") for member in members]
        files = members[0]._host.root  # private: the test needs the folder
        assert len([path for path in files.rglob("*") if not path.is_dir()]) == 2
        for generation in range(2):
            for board in boards:
                board.arrive(generation)
            assert [path for path in files.rglob("*") if not path.is_dir()] == []
        assert all(board.met(1) for board in boards)


def test_shared_memory_that_is_full_is_an_error_with_a_class(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space")

    with gang() as members:
        monkeypatch.setattr(os, "posix_fallocate", full)
        with pytest.raises(StoreError, match="full"):
            members[0].open("epoch")


@contextlib.contextmanager
def gang() -> Iterator[list[Boards]]:
    with tempfile.TemporaryDirectory(prefix="treadle-boards-", dir=SHARED_MEMORY) as folder:
        host = HostFolder(f"{folder}/host")
        members = [Boards(host, "run/channels/g", rank, SIZE) for rank in range(SIZE)]
        yield members
        for member in members:
            member.close()


@contextlib.contextmanager
def settled(seconds: float) -> Iterator[None]:
    """After this time all members see a write."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("treadle.primitives.channels.io.shared_barrier._SETTLES", seconds)
        yield


@contextlib.contextmanager
def edge_triggered(bell: Bell) -> Iterator[select.epoll]:
    with select.epoll() as epoll:
        epoll.register(bell.fileno(), select.EPOLLIN | select.EPOLLET)
        yield epoll


# -- processes ----------


@pytest.mark.parametrize("function", [functions.barriers, functions.barriers_without_a_bell])
def test_no_member_passes_before_all_have_arrived(here: Place, function: Callable[[], list[float]]) -> None:
    ended = here.run(SIZE, function)
    assert not [one for one in ended if one.error]
    for members in zip(*(one.value for one in ended), strict=True):
        assert max(arrived for arrived, _ in members) <= min(passed for _, passed in members)
    assert here.left_over() == []


@pytest.mark.parametrize(("phase", "victim"), [("before", 0), ("within", SIZE - 1), ("after", 1)])
def test_all_pass_or_none_does_when_a_member_is_killed(here: Place, phase: str, victim: int) -> None:
    members = here.start(SIZE, functions.survives, "barrier", phase, victim)
    members[victim].reached("here")
    members[victim].kill()
    ended = [process.end() for process in members]
    assert ended.pop(victim).error == "killed"
    assert [one.error for one in ended] == [""] * (SIZE - 1), ended
    passed = {tuple(one.value) for one in ended}
    assert len(passed) == 1, passed
    assert passed.pop()[-1] == "lost 1"


def test_a_stopped_member_that_goes_on_after_its_lease_ends_as_the_others_do(here: Place) -> None:
    members = here.start(3, functions.survives, "barrier", "before", 1)
    members[1].reached("here")
    members[1].kill(signal.SIGSTOP)
    others = [members[number].end().value for number in (0, 2)]
    members[1].go()
    members[1].kill(signal.SIGCONT)
    assert [*others, members[1].end().value] == [[None, "lost 1"]] * 3


@pytest.mark.parametrize("rounds", [0, 1])
def test_late_member_ends_as_the_members_that_learned_of_a_loss(here: Place, rounds: int) -> None:
    members = here.start(3, functions.is_overtaken_by_a_loss, rounds)
    members[2].reached("here")
    members[1].reached("not there")
    members[2].kill()
    members[0].reached("told")
    members[1].go()
    first, second, _ = (process.end() for process in members)
    assert first.value in ("passed", "lost 1"), first
    assert second.value == first.value


def test_a_deadline_says_how_many_are_there(here: Place) -> None:
    first, second = here.start(2, functions.waits_alone_at_a_barrier)
    second.reached("done")
    ended = first.end()
    second.go()
    second.end()
    assert (ended.error, "1 of 2 members" in ended.message) == ("DeadlinePassed", True), ended


def test_members_that_wait_for_different_numbers_receive_an_error(here: Place) -> None:
    assert {"UsageError"} <= {one.error for one in here.run(3, functions.waits_with_other_parties, deadline=2.0)}


def test_successor_of_the_coordinator_reports_a_loss() -> None:
    with coordinators.killable(RUN, KEY) as coordinator, place(coordinator.address) as there:
        members = there._replace(one_host=True).start(3, functions.is_told_of_a_loss_after_a_restart)
        for process in members:
            process.reached("met")
        coordinator.kill()
        coordinator.start()
        for process in members:
            process.go()
        for process in members:
            process.reached("back")
        members[1].kill()
        members[0].go()
        members[2].go()
        assert [members[number].end().value for number in (0, 2)] == ["lost 1"] * 2
        members[1].end()


@pytest.mark.parametrize("breaks", [False, True])
def test_departed_member_counts_as_arrived_after_the_coordinator_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, breaks: bool
) -> None:
    """Otherwise others could pass, and join the channel again before this member has left it."""
    seen: list[str] = []
    arrive = Board.arrive

    def arrives(board: Board, generation: int) -> None:
        seen.append("arrives")
        arrive(board, generation)

    monkeypatch.setattr(Board, "arrive", arrives)

    def coordinate(connection: wire.Connection) -> None:
        with contextlib.suppress(wire.WireError):
            while not isinstance(said := connection.receive_head(FromMember, soon())[0], Bye):
                if isinstance(said, Leave | Count):
                    seen.append(type(said).__name__)
                if isinstance(said, Count):
                    if breaks and seen.count("Count") == 1:
                        return
                    connection.send(Counted(said.subject, 0, 0), deadline=soon())

    with serving(coordinate) as address, gang() as (boards, *_):
        blocks = Blocks(Store.open(f"file://{tmp_path}"), sides.RUN, boards._host)
        member = Member(Gang(address, sides.RUN, "alone", 0, 1, one_host=True), sides.KEY, blocks)
        BroadcastChannel("b", member=member).join()
        Barrier("before", member=member).wait()
        member.leave("alone/broadcast/b")
        for _ in range(2):
            Barrier("after", member=member).wait()
        member.close()
    assert seen == ["arrives", "Leave", *["Count"] * (1 + breaks), "arrives", "arrives"]
