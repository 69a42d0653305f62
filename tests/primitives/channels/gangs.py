"""Gangs of real processes over loopback, forked from a process with all imports, and ended by their parent."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any, NamedTuple

from primitives.channels import coordinators

from treadle.primitives.blocks import Blocks
from treadle.primitives.channels import Gang
from treadle.primitives.channels.member import Member
from treadle.primitives.channels.member_scope import taking_part
from treadle.primitives.stores.shared_memory import SHARED_MEMORY, HostFolder
from treadle.primitives.stores.store import Store

KEY = bytes(range(32))
RUN = "run"
WAIT = 60.0
"""Seconds after which a silent member process counts as hanging."""
_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["primitives.channels.gangs", "treadle.primitives.channels.collectives", "numpy"])


class Ended(NamedTuple):
    """The end of a member's function."""

    value: Any = None
    error: str = ""
    """Name of the exception's class. `killed`: the process ended without a report."""
    message: str = ""


class Process:
    """One member."""

    def __init__(self, place: Place, gang: Gang, function: Callable[..., Any], arguments: Sequence[Any]) -> None:
        self._pipe, theirs = _context.Pipe()
        self.process: ForkServerProcess = _context.Process(
            target=_member, args=(theirs, place, gang, function, tuple(arguments)), daemon=True
        )
        self.process.start()
        theirs.close()

    def kill(self, how: int = signal.SIGKILL) -> None:
        assert self.process.pid is not None
        os.kill(self.process.pid, how)

    def reached(self, word: str) -> None:
        """Wait until the function has called `say(word)`."""
        assert self._pipe.poll(WAIT), f"never came to {word}"
        assert self._pipe.recv() == word

    def go(self) -> None:
        """Let a function continue that called `halt`."""
        self._pipe.send("go")

    def end(self) -> Ended:
        """The end of the function. The process is gone then."""
        try:
            if not self._pipe.poll(WAIT):
                return Ended(None, "hangs")
            while not isinstance(found := self._pipe.recv(), Ended):
                if not self._pipe.poll(WAIT):
                    return Ended(None, "hangs")
            return found
        except (EOFError, ConnectionResetError):
            return Ended(None, "killed")
        finally:
            self._pipe.close()
            self.process.join(10)
            self.process.kill()
            self.process.join()


class Place(NamedTuple):
    """A coordinator, and folders for the blocks of one test."""

    address: str
    store: str
    host: str
    one_host: bool = False
    """True: the members know that they share the host's memory."""
    inbound: bool = True
    """False: no member can be dialled."""
    nearby: bool = True
    """False: members dial the addresses for other hosts, although they are on one."""

    def meeting(self, way: str) -> Place:
        """The place for members that meet over `tcp`, over `unix` sockets, or by hole `punching`. Members in
        `mixed` use Unix sockets too, although other members may be elsewhere."""
        return self._replace(one_host=way == "unix", inbound=way != "punching", nearby=way != "tcp")

    def start(self, size: int, function: Callable[..., Any], *arguments: Any, deadline: float = 30.0) -> list[Process]:
        """Start `size` processes, each of which calls `function(*arguments)` as a member of one new gang."""
        name = f"gang-{os.urandom(4).hex()}"
        ways = (deadline, self.one_host, self.inbound)
        gangs = [Gang(self.address, RUN, name, rank, size, *ways) for rank in range(size)]
        return [Process(self, gang, function, arguments) for gang in gangs]

    def run(self, size: int, function: Callable[..., Any], *arguments: Any, deadline: float = 30.0) -> list[Ended]:
        return [process.end() for process in self.start(size, function, *arguments, deadline=deadline)]

    def left_over(self) -> list[str]:
        """Files in shared memory."""
        return [str(path) for path in Path(self.host).rglob("*") if not path.is_dir()]


@contextlib.contextmanager
def place(address: str = "") -> Iterator[Place]:
    """Folders, and a coordinator unless `address` has one."""
    with (
        tempfile.TemporaryDirectory(prefix="treadle-channels-", dir=SHARED_MEMORY) as host,
        tempfile.TemporaryDirectory() as store,
        contextlib.nullcontext(address) if address else coordinators.running(RUN, KEY) as found,
    ):
        yield Place(found, f"file://{store}", host)


_pipe: Connection | None = None


def say(word: str) -> None:
    """In a member: send the word to the test."""
    assert _pipe is not None
    _pipe.send(word)


def halt(word: str) -> None:
    """In a member: send the word to the test, and wait for its `go`."""
    say(word)
    assert _pipe is not None
    _pipe.recv()


def _member(
    pipe: Connection, place: Place, gang: Gang, function: Callable[..., Any], arguments: tuple[Any, ...]
) -> None:
    global _pipe
    _pipe = pipe
    blocks = Blocks(Store.open(place.store), gang.run, HostFolder(place.host))
    if not place.nearby:
        Member._addresses = lambda self, seat: tuple(filter(None, (seat.address,)))  # type: ignore[method-assign] # private: as between hosts
    try:
        with taking_part(gang, KEY, blocks):
            ended = Ended(function(*arguments))
    except BaseException as error:  # noqa: BLE001 - the test sees it
        traceback.print_exc()
        ended = Ended(None, type(error).__name__, str(error))
    pipe.send(ended)
    pipe.close()
