"""Random programs of calls, their outcomes in the reference interpreter, and the client that runs one and kills itself.

`python session_programs.py HOME ID FOLDER` runs `FOLDER/program.json` in the session ID. A client that comes after a
killed one finds the calls that are on record, and goes on behind them.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from functools import partial
from operator import add
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
from hypothesis import strategies as st

from treadle.client import CallFailed, Future, Futures, Session, session
from treadle.dsl.reference.sessions import CallNotRun, ReferenceFuture, ReferenceSession
from treadle.orchestrator import embedded
from treadle.orchestrator.embedded.driver_process import driver_alive
from treadle.orchestrator.environment.home import Home

Kind = Literal["add", "slow", "refuse", "die"]


class Submit(msgspec.Struct, frozen=True, tag=True):
    """A call with the results of earlier statements."""

    kind: Kind
    needs: tuple[int, ...] = ()


class Map(msgspec.Struct, frozen=True, tag=True):
    """A call for each item, which also gets the results of earlier statements."""

    kinds: tuple[Kind, ...]
    chunk: int
    needs: tuple[int, ...] = ()


class Reduce(msgspec.Struct, frozen=True, tag=True):
    """`map_reduce`: adds the items, per key if there are reducers."""

    kinds: tuple[Kind, ...]
    chunk: int
    reducers: int


class Cancel(msgspec.Struct, frozen=True, tag=True):
    """Cancels the calls of an earlier statement, if it is a `Submit` or a `Reduce`."""

    of: int


class KillDriver(msgspec.Struct, frozen=True, tag=True):
    """SIGKILL to the driver."""


class KillClient(msgspec.Struct, frozen=True, tag=True):
    """SIGKILL to the client, once its calls are accepted or as soon as they are made."""

    accepted: bool


Calls = Submit | Map | Reduce
Statement = Calls | Cancel | KillDriver | KillClient


# -- programs


def kinds(*more: Kind) -> st.SearchStrategy[Kind]:
    some: tuple[Kind, ...] = ("add", "add", "slow", "refuse")
    return st.sampled_from(some + more)


@st.composite
def calls(draw: st.DrawFn, earlier: int) -> Calls:
    """Calls that need some of the earlier ones."""
    needs = tuple(draw(st.lists(st.integers(0, earlier - 1), max_size=2, unique=True))) if earlier else ()
    several = st.lists(kinds(), min_size=1, max_size=6).map(tuple)
    return draw(
        st.one_of(
            st.builds(Submit, kinds("die"), st.just(needs)),
            st.builds(Map, several, st.integers(1, 3), st.just(needs)),
            st.builds(Reduce, several, st.integers(1, 3), st.integers(0, 2)),
        )
    )


@st.composite
def programs(draw: st.DrawFn) -> tuple[Statement, ...]:
    """Calls, cancellations, and at most four kills."""
    statements: list[Statement] = []
    for number in range(draw(st.integers(2, 8))):
        statements.append(draw(calls(number)))
        if draw(st.integers(0, 3)) == 0:
            statements.append(Cancel(draw(st.integers(0, number))))
    kills: tuple[Statement, ...] = (KillDriver(), KillClient(True), KillClient(False))
    for kill in draw(st.lists(st.sampled_from(kills), max_size=4)):
        statements.insert(draw(st.integers(1, len(statements))), kill)
    return tuple(statements)


# -- the meaning


class Refused(NamedTuple):
    """The function raised ValueError with this name."""

    name: str


class Cut(NamedTuple):
    """The call was cancelled, or it needs one that was, directly or not."""

    itself: bool


Outcome = Any
"""A value, Refused or Cut; of a Map a list of them."""


def meaning(program: Sequence[Statement], cancelled: set[int]) -> list[Outcome]:
    """The outcomes of the calls, where the calls of the statements `cancelled` never began."""
    session, made = ReferenceSession(), list[ReferenceFuture | list[ReferenceFuture]]()
    for number, one in enumerate(calls_of(program)):
        made.append(session.cancelled() if number in cancelled else _meant(session, number, one, made))
    return [
        [outcome(one.result) for one in calls] if isinstance(calls, list) else outcome(calls.result) for calls in made
    ]


def _meant(
    session: ReferenceSession, number: int, one: Calls, made: Sequence[ReferenceFuture | list[ReferenceFuture]]
) -> ReferenceFuture | list[ReferenceFuture]:
    match one:
        case Submit(kind, needs):
            return session.submit(value_of, f"{number}", kind, number, *(made[need] for need in needs))
        case Map(several, _, needs):
            given = [made[need] for need in needs]
            return session.starmap(value_of, [(*item, *given) for item in items(number, several)])
        case Reduce(several, _, reducers):
            if reducers:
                return session.map_reduce(key_and_value, items(number, several), add, per="key")
            return session.map_reduce(lambda item: value_of(*item), items(number, several), add)


def outcome(result: Callable[[], Any]) -> Outcome:
    """The outcome of a call, from what `result` returns or raises: in a session, or in the reference interpreter."""
    try:
        return result()
    except CancelledError:
        return Cut(itself=True)
    except (CallFailed, CallNotRun):
        return Cut(itself=False)
    except ValueError as refused:
        return Refused(*refused.args)


def calls_of(program: Sequence[Statement]) -> list[Calls]:
    return [one for one in program if isinstance(one, Calls)]


def items(number: int, kinds: Sequence[Kind]) -> Iterator[tuple[str, Kind, int]]:
    """(name of its mark, kind, value) of each item of a statement."""
    return ((f"{number}.{item}", kind, item) for item, kind in enumerate(kinds))


def total(value: Any) -> int:
    """The sum of all numbers of a result."""
    if isinstance(value, int):
        return value
    return sum(map(total, value.values() if isinstance(value, Mapping) else value))


# -- the functions


def value_of(name: str, kind: Kind, value: int, *needs: Any) -> int:
    """Return the value and the sum of the needs, or refuse."""
    if kind == "refuse":
        raise ValueError(name)
    return value + sum(map(total, needs))


def key_and_value(item: tuple[str, Kind, int]) -> list[tuple[int, int]]:
    return [(item[2] % 3, value_of(*item))]


def call(folder: str, name: str, kind: Kind, value: int, *needs: Any) -> int:
    """Leaves a line in the file of its name."""
    with (Path(folder) / name).open("a") as mark:
        mark.write("begun\n")
    if kind == "die" and (Path(folder) / name).read_text() == "begun\n":
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "slow":
        time.sleep(0.1)
    return value_of(name, kind, value, *needs)


def pairs(folder: str, item: tuple[str, Kind, int]) -> list[tuple[int, int]]:
    name, kind, value = item
    return [(value % 3, call(folder, name, kind, value))]


def plain(folder: str, item: tuple[str, Kind, int]) -> int:
    return call(folder, *item)


# -- the client


class ProgramClient:
    """Runs the rest of a program in a session."""

    def __init__(self, home: Path, run: str, folder: Path) -> None:
        self._home, self._folder = Home(home), folder
        self._program = msgspec.json.decode((folder / "program.json").read_bytes(), type=list[Statement])
        self._session = session(id=run, home=home)
        self._made: list[Future | Futures] = self._session.futures()

    def run(self) -> None:
        left = len(self._made)
        for number, one in enumerate(self._program):
            if isinstance(one, Calls) and left > 0:
                left -= 1  # it is on record
            elif left == 0:
                self._do(number, one)
        self._session.close()

    def _do(self, number: int, one: Statement) -> None:
        match one:
            case Cancel(of):
                self._cancel(of)
            case KillDriver() if self._first_time(number):
                self._kill_driver()
            case KillClient(accepted) if self._first_time(number):
                if accepted and self._made:
                    _ = single(self._made[-1]).id
                os.kill(os.getpid(), signal.SIGKILL)
            case Submit() | Map() | Reduce():
                self._made.append(self._call(one))

    def _call(self, one: Calls) -> Future | Futures:
        number, marks = len(self._made), str(self._folder)
        match one:
            case Submit(kind, needs):
                return self._session.submit(call, marks, f"{number}", kind, number, *(self._made[n] for n in needs))
            case Map(several, chunk, needs):
                given = [self._made[need] for need in needs]
                calls = [(marks, *item, *given) for item in items(number, several)]
                return self._session.starmap(call, calls, chunk=chunk)
            case Reduce(several, chunk, reducers):
                return reduced(self._session, marks, list(items(number, several)), chunk, reducers)

    def _cancel(self, of: int) -> None:
        future = self._made[of]
        if isinstance(future, Future):
            note(self._folder / "cancelled.jsonl", (of, future.cancel()))

    def _kill_driver(self) -> None:
        if (driver := embedded.running_driver(self._home)) is not None:
            with suppress(ProcessLookupError):
                os.kill(driver.pid, signal.SIGKILL)
            while driver_alive(self._home):
                time.sleep(0.01)
        for number, one in enumerate(self._made):
            if isinstance(one, Future) and one.done():
                note(self._folder / "ended.jsonl", (f"{number}", starts(self._folder, f"{number}")))

    def _first_time(self, number: int) -> bool:
        try:
            (self._folder / f"kill-{number}").touch(exist_ok=False)
        except FileExistsError:
            return False
        return True


def reduced(s: Session, marks: str, given: list[Any], chunk: int, reducers: int) -> Future:
    function: Callable[[Any], Any] = partial(pairs if reducers else plain, marks)
    if reducers:
        return s.map_reduce(function, given, add, per="key", chunk=chunk, reducers=reducers)
    return s.map_reduce(function, given, add, chunk=chunk)


def single(made: Future | Futures) -> Future:
    return made if isinstance(made, Future) else made[0]


def starts(folder: Path, name: str) -> int:
    """How often the call of this name began."""
    with suppress(FileNotFoundError):
        return len((folder / name).read_text().splitlines())
    return 0


def note(file: Path, entry: tuple[Any, ...]) -> None:
    with file.open("a") as lines:
        lines.write(json.dumps(entry) + "\n")


def notes(file: Path) -> list[list[Any]]:
    with suppress(FileNotFoundError):
        return [json.loads(line) for line in file.read_text().splitlines()]
    return []


if __name__ == "__main__":
    home, run, folder = sys.argv[1:]
    ProgramClient(Path(home), run, Path(folder)).run()
