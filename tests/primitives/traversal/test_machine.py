from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from properties.profiles import examples

from treadle.primitives.hole_punching import Schedule, Traversal
from treadle.primitives.hole_punching.machine import (
    MOST_STRANGERS,
    ClosePath,
    ConnectionAccepted,
    DialFailed,
    Dialled,
    EndWithoutPath,
    Event,
    Instruction,
    Prove,
    Proved,
    Refuted,
    StartDial,
    StartListening,
    StopDial,
    StopListening,
    TimePassed,
    Use,
)

SCHEDULE = Schedule()
BEGIN = 1000.0


def leader(deadline: float = 1e9) -> Traversal:
    return Traversal("a", "b", BEGIN, deadline, SCHEDULE)


def follower(deadline: float = 1e9) -> Traversal:
    return Traversal("b", "a", BEGIN, deadline, SCHEDULE)


def ticked(machine: Traversal, until: float) -> list[tuple[float, Instruction]]:
    """The instructions of the state machine without events until then, each with its time since the beginning."""
    said = [(0.0, instruction) for instruction in machine.handle(TimePassed(), BEGIN)]
    while not machine.over and machine.wake <= BEGIN + until:
        now = machine.wake
        said += [(now - BEGIN, instruction) for instruction in machine.handle(TimePassed(), now)]
    return said


def test_both_dial_and_listen_at_once_and_then_one_after_the_other() -> None:
    both = [(0.0, StartDial()), (0.0, StartListening()), (4.0, StopDial())]
    assert ticked(leader(), 7.9) == [
        *both,
        (4.0, StartDial()),
        (4.0, StopListening()),
        (6.0, StopDial()),
        (6.0, StartListening()),
    ]
    assert ticked(follower(), 7.9) == [*both, (6.0, StartDial()), (6.0, StopListening())]


def test_silence_ends_after_the_last_phase() -> None:
    (moment, last) = ticked(leader(), 60)[-1]
    assert moment == 8.0
    assert last == EndWithoutPath("2 dials, 0 connections, the last: nothing answered")


def test_the_deadline_ends_it_earlier() -> None:
    assert ticked(leader(BEGIN + 0.5), 60)[2:] == [
        (0.5, StopDial()),
        (0.5, StopListening()),
        (0.5, EndWithoutPath("1 dials, 0 connections, the last: nothing answered")),
    ]


def test_a_refused_dial_is_repeated_after_pauses_that_double() -> None:
    machine, pauses = leader(), []
    assert StartDial() in machine.handle(TimePassed(), BEGIN)
    now = BEGIN
    for _ in range(5):
        assert machine.handle(DialFailed("refused"), now) == []
        pauses.append(round(machine.wake - now, 3))
        now = machine.wake
        assert machine.handle(TimePassed(), now) == [StartDial()]
    assert pauses == [0.05, 0.1, 0.2, 0.4, 0.8]


def test_a_connection_is_proved_and_a_proved_one_is_used() -> None:
    machine = leader()
    machine.handle(TimePassed(), BEGIN)
    assert machine.handle(Dialled(1), BEGIN + 1) == [Prove(1)]
    assert machine.handle(ConnectionAccepted(2), BEGIN + 1) == [Prove(2)]
    assert machine.handle(Proved(2), BEGIN + 1.1) == [StopListening(), ClosePath(1), Use(2)]
    assert machine.over


def test_path_in_use_stays_open_when_it_is_proved_twice() -> None:
    machine = leader()
    machine.handle(TimePassed(), BEGIN)
    machine.handle(ConnectionAccepted(3), BEGIN)
    assert machine.handle(Proved(3), BEGIN + 1)[-1] == Use(3)
    assert machine.handle(Proved(3), BEGIN + 1) == []
    assert machine.handle(Proved(4), BEGIN + 1) == [ClosePath(4)]


def test_no_other_dial_while_one_is_proved_and_one_after_it_is_refuted() -> None:
    machine = leader()
    machine.handle(TimePassed(), BEGIN)
    machine.handle(Dialled(1), BEGIN + 1)
    assert machine.handle(TimePassed(), BEGIN + 3) == []
    assert machine.handle(Refuted(1, "wrong token"), BEGIN + 3) == [ClosePath(1)]
    assert machine.handle(TimePassed(), BEGIN + 3.05) == [StartDial()]


def test_a_silent_connection_is_refuted() -> None:
    machine = leader()
    machine.handle(TimePassed(), BEGIN)
    machine.handle(Dialled(1), BEGIN + 0.5)
    assert machine.wake == BEGIN + 3.5
    assert machine.handle(TimePassed(), machine.wake) == [ClosePath(1)]
    assert machine.handle(Proved(1), BEGIN + 3.5) == [ClosePath(1)]


def test_a_clock_that_goes_back_stands_still() -> None:
    machine = leader()
    machine.handle(TimePassed(), BEGIN + 2)
    machine.handle(Dialled(1), BEGIN - 1000)
    assert machine.wake == BEGIN + 4
    assert machine.handle(TimePassed(), BEGIN + 4.9) == [StopListening()]
    assert machine.handle(TimePassed(), BEGIN + 5) == [ClosePath(1)]


def test_a_proof_under_way_may_end_after_the_last_phase() -> None:
    machine = leader()
    machine.handle(TimePassed(), BEGIN)
    machine.handle(TimePassed(), BEGIN + 7.9)
    machine.handle(ConnectionAccepted(1), BEGIN + 7.9)
    assert machine.handle(TimePassed(), BEGIN + 8.5) == [StopListening()]
    assert machine.handle(Proved(1), BEGIN + 9) == [Use(1)]


def test_strangers_are_few_and_do_not_keep_the_member_from_dialling() -> None:
    machine = leader()
    machine.handle(TimePassed(), BEGIN)
    for number in range(MOST_STRANGERS):
        assert machine.handle(ConnectionAccepted(number), BEGIN) == [Prove(number)]
    assert machine.handle(ConnectionAccepted(99), BEGIN) == [ClosePath(99)]
    assert machine.handle(DialFailed("refused"), BEGIN) == []
    assert machine.handle(TimePassed(), BEGIN + 0.05) == [StartDial()]
    assert machine.handle(Dialled(100), BEGIN + 0.06) == [Prove(100)]


def test_oldest_stranger_makes_room_once_it_has_had_a_quarter_of_its_time() -> None:
    machine = leader()
    machine.handle(TimePassed(), BEGIN)
    machine.handle(Dialled(50), BEGIN)
    for number in range(MOST_STRANGERS):
        machine.handle(ConnectionAccepted(number), BEGIN)
    assert machine.handle(ConnectionAccepted(98), BEGIN + 0.7) == [ClosePath(98)]
    assert machine.handle(ConnectionAccepted(99), BEGIN + 0.8) == [ClosePath(0), Prove(99)]


class Shell:
    """A shell that follows instructions, and fails on an impossible one."""

    def __init__(self, machine: Traversal) -> None:
        self.machine = machine
        self.dialling = self.listening = False
        self.paths: dict[int, bool] = {}
        self.last: Instruction | None = None

    def event(self, event: Event, now: float) -> None:
        over = self.machine.over
        instructions = self.machine.handle(event, now)
        assert not over or all(isinstance(one, ClosePath) for one in instructions)
        for number, instruction in enumerate(instructions):
            assert self.last is None or isinstance(instruction, ClosePath)
            self.do(instruction)
            assert not isinstance(instruction, Use | EndWithoutPath) or number == len(instructions) - 1
        assert self.machine.over == (self.last is not None)
        assert len(self.paths) <= MOST_STRANGERS + 1
        if self.machine.over:
            assert not self.dialling
            assert not self.listening
            assert list(self.paths) == ([self.last.path] if isinstance(self.last, Use) else [])

    def do(self, instruction: Instruction) -> None:
        match instruction:
            case StartDial():
                assert not self.dialling
                self.dialling = True
            case StopDial():
                assert self.dialling
                self.dialling = False
            case StartListening() | StopListening():
                assert self.listening == isinstance(instruction, StopListening)
                self.listening = not self.listening
            case Prove(path):
                assert self.paths[path] is False
                self.paths[path] = True
            case ClosePath(path):
                self.paths.pop(path, None)
            case Use(path):
                assert self.paths[path]
                self.last = instruction
            case EndWithoutPath():
                self.last = instruction


KINDS = ["tick", "wake", "dialled", "failed", "accepted", "proved", "refuted"]
STEPS = st.lists(
    st.tuples(st.sampled_from(KINDS), st.sampled_from([0.0, 0.001, 0.3, 1.0, 5.0, 30.0, -2.0]), st.integers(0, 12)),
    max_size=60,
)


def happen(shell: Shell, kind: str, pick: int, count: int) -> Event:
    """An event in the form of a shell's report. The picked path may be open, closed, or unknown."""
    match kind:
        case "dialled" if shell.dialling:
            shell.dialling = False
            shell.paths[count] = False
            return Dialled(count)
        case "failed" if shell.dialling:
            shell.dialling = False
            return DialFailed("refused")
        case "accepted":
            shell.paths[count] = False
            return ConnectionAccepted(count)
        case "proved":
            return Proved(pick)
        case "refuted":
            return Refuted(pick, "no")
    return TimePassed()


@pytest.mark.parametrize("make", [leader, follower])
@examples(200)
@given(steps=STEPS, patience=st.sampled_from([-1.0, 0.0, 0.5, 3.0, 7.0, 1e6]))
def test_any_order_of_events_and_jumps_of_the_clock_ends_in_time(
    make: Callable[[float], Traversal], steps: list[tuple[str, float, int]], patience: float
) -> None:
    shell = Shell(make(BEGIN + patience))
    now = BEGIN
    shell.event(TimePassed(), now)
    for count, (kind, pause, pick) in enumerate(steps):
        now = shell.machine.wake if kind == "wake" else now + pause
        shell.event(happen(shell, kind, pick, count), now)
    end = BEGIN + min(patience, SCHEDULE.total)
    for _ in range(100):
        if shell.machine.over:
            break
        assert shell.machine.wake <= max(end, BEGIN)
        shell.event(TimePassed(), shell.machine.wake)
    assert shell.last is not None


@examples(100)
@example(steps=[("accepted", 0.0, 0), ("proved", 0.0, 0), ("proved", 0.0, 0)])
@example(
    steps=[("dialled", 0.0, 0), ("tick", 0.0, 0), ("accepted", 0.0, 0), ("accepted", 0.0, 0)] + [("proved", 0.0, 3)] * 2
)
@given(steps=STEPS)
def test_it_never_asks_to_be_woken_in_the_past_for_nothing(steps: list[tuple[str, float, int]]) -> None:
    """After any event, a wake-up time that has already passed would cause a busy loop."""
    shell = Shell(leader())
    now = BEGIN
    for count, (kind, pause, pick) in enumerate(steps):
        now += abs(pause)
        shell.event(happen(shell, kind, pick, count), now)
        assert shell.machine.over or shell.machine.wake > now
