"""Members as processes of this machine, for the rivals that have none of their own.

All members meet at a barrier of the system before each round. They record their start and end, on the clock and in the
memory that all processes of a machine share: messages to the parent would take processor time from members that still
work. No process sleeps shortly before: two idle cores that must wake 64 members at once take far longer than a round.

A round takes from the first start until the last end; a barrier, from the last arrival until the last release. Making
arrays and checking answers is not timed.
"""

from __future__ import annotations

import ctypes
import gc
import multiprocessing
import selectors
import time
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess
from multiprocessing.synchronize import Barrier
from typing import Any, NamedTuple, Protocol

import numpy as np

from harness import work
from harness.work import Array, Task

DEADLINE = 60.0
"""Seconds within which every step of every member must end."""
_LOOK = 0.002
"""Seconds between checks for the end of all."""


class Member(Protocol):
    """The operations of a rival's member. `key` is the same for all members of one collective, and new for each
    collective."""

    def broadcast(self, key: str, value: Array | None) -> Array:
        """Seat 0 gives the value, the others None. All return it."""

    def reduce(self, key: str, value: Array) -> Array | None:
        """Returns the element-wise sum at one of the members, None at the others."""

    def shuffle(self, key: str, value: Array) -> Array:
        """Returns the integers of all members that are congruent to its own seat."""

    def barrier(self, key: str) -> None:
        """Returns once all have called it."""

    def ping(self, key: str, payload: bytes, count: int) -> list[float]:
        """Called by seat 0: seconds of each of `count` round trips to seat 1, which calls `pong`."""

    def pong(self, key: str, count: int) -> None: ...

    def close(self) -> None: ...


Join = Callable[[Any, int, int], Member]
"""Called with (setup, seat, members) in the member's process."""


class Place(NamedTuple):
    """The place of one member among the others."""

    seat: int
    members: int
    pipe: Connection
    """Connection to the parent."""
    start: Barrier
    times: ctypes.Array[ctypes.c_double]
    """The start of each seat in this round, then the end of each seat. 0: not yet."""


class Gang:
    """`members` processes. `setup` must be picklable, and `join` importable."""

    def __init__(self, join: Join, setup: Any, members: int, preload: Sequence[str]) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["harness.gang", *preload])
        self._members = members
        self._pipes: list[Connection] = []
        self._processes: list[ForkServerProcess] = []
        self._keys = 0
        self._said = selectors.DefaultSelector()
        self._times = context.RawArray(ctypes.c_double, 2 * members)
        start = context.Barrier(members)
        for seat in range(members):
            ours, theirs = context.Pipe()
            place = Place(seat, members, theirs, start, self._times)
            process = context.Process(target=_live, args=(place, join, setup), daemon=True)
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self._said.register(ours, selectors.EVENT_READ)
            self._processes.append(process)
        self._all("joined")

    def measure(self, task: Task) -> list[float]:
        """Seconds of each round. Raises AssertionError for a wrong answer and RuntimeError when a member fails."""
        pipes = self._pipes[:2] if task.operation == "round trip" else self._pipes
        for pipe in pipes:
            pipe.send((task, self._keys))
        self._keys += task.warm_up + task.rounds
        if task.operation == "round trip":
            return list(self._all("trips", pipes)[0])
        seconds = [self._round(task, number) for number in range(task.warm_up + task.rounds)]
        return seconds[task.warm_up :]

    def close(self) -> None:
        for pipe in self._pipes:
            try:
                pipe.send(None)
            except OSError:
                continue
        end = time.monotonic() + 10
        for process in self._processes:
            process.join(max(0.1, end - time.monotonic()))
            if process.is_alive():
                process.kill()
                process.join()
        self._said.close()

    def _round(self, task: Task, number: int) -> float:
        self._all("ready")
        self._times[:] = [0.0] * len(self._times)
        for pipe in self._pipes:
            pipe.send("go")
        self._await_all_done()
        for pipe in self._pipes:
            pipe.send("check")
        answers = self._all("checked")
        if task.operation == "shuffle":
            work.check_shuffle(task, self._members, number, answers)
        if task.operation == "reduce" and sum(answers) != 1:
            raise AssertionError("wrong answer: the sum of a reduce must be at one member")
        first = (max if task.operation == "barrier" else min)(self._times[: self._members])
        return float(max(self._times[self._members :]) - first)

    def _await_all_done(self) -> None:
        """A member that sends a message instead has failed."""
        end = time.monotonic() + DEADLINE
        while not all(self._times[self._members :]):
            if self._said.select(_LOOK) or time.monotonic() > end:
                self._all("done")

    def _all(self, what: str, pipes: Sequence[Connection] | None = None) -> list[Any]:
        """The next message of each member, by seat. `what`: the expected message."""
        pipes = self._pipes if pipes is None else pipes
        answers: dict[Connection, Any] = {}
        end = time.monotonic() + DEADLINE
        while len(answers) < len(pipes):
            ready = wait([pipe for pipe in pipes if pipe not in answers], max(0.0, end - time.monotonic()))
            if not ready:
                raise RuntimeError(f"{len(pipes) - len(answers)} members did not say {what!r} in {DEADLINE:.0f} s")
            for pipe in ready:
                assert isinstance(pipe, Connection)
                answers[pipe] = _said(pipe, what)
        return [answers[pipe] for pipe in pipes]


def _said(pipe: Connection, what: str) -> Any:
    try:
        said, answer = pipe.recv()
    except EOFError:
        raise RuntimeError("a member died") from None
    if said != what:
        raise RuntimeError(f"a member said {said!r}: {answer}")
    return answer


def _live(place: Place, join: Join, setup: Any) -> None:
    """Run a member: one task after the other, until None arrives."""
    pipe = place.pipe
    try:
        member = join(setup, place.seat, place.members)
        try:
            pipe.send(("joined", None))
            while (said := pipe.recv()) is not None:
                _perform(place, member, *said)
        finally:
            member.close()
    except EOFError:
        return
    except BaseException:  # noqa: BLE001 - the parent reports every error
        pipe.send(("failed", traceback.format_exc()))


def _perform(place: Place, member: Member, task: Task, first_key: int) -> None:
    if task.operation == "round trip":
        place.pipe.send(("trips", _trips(member, place.seat, task, first_key)))
        return
    brings = task.operation != "broadcast" or place.seat == 0
    value = work.source(task, place.seat, place.members) if brings else np.empty(0)
    for number in range(task.warm_up + task.rounds):
        gc.collect()
        place.pipe.send(("ready", None))
        place.pipe.recv()
        place.start.wait(DEADLINE)
        _one_round(place, member, task, f"{first_key + number}", number, value)
        work.advance(value)


def _one_round(place: Place, member: Member, task: Task, key: str, number: int, value: Array) -> None:
    place.times[place.seat] = time.monotonic()
    check = _do(place, member, task, key, number, value)
    place.times[place.members + place.seat] = time.monotonic()
    place.pipe.recv()  # else a finished member takes processor time from the others
    place.pipe.send(("checked", check()))


def _do(place: Place, member: Member, task: Task, key: str, number: int, value: Array) -> Callable[[], object]:
    """The timed work. Returns a function that checks the answer."""
    seat, members = place.seat, place.members
    if task.operation == "barrier":
        member.barrier(key)
        return lambda: None
    if task.operation == "broadcast":
        read = work.total(member.broadcast(key, value if seat == 0 else None))
        return lambda: work.check_broadcast(task, number, read)
    if task.operation == "reduce":
        result = member.reduce(key, value)
        return lambda: result is not None and work.check_reduce(task, members, number, result)
    received = member.shuffle(key, value)
    return lambda: work.shuffled(received, seat, members)


def _trips(member: Member, seat: int, task: Task, first_key: int) -> list[float]:
    count = task.warm_up + task.rounds
    if seat == 0:
        return member.ping(str(first_key), bytes(task.size), count)[task.warm_up :]
    member.pong(str(first_key), count)
    return []
