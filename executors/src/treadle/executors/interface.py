"""The executor interface: the methods and capabilities that every executor has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol, runtime_checkable

from msgspec import Struct

from treadle.primitives.channels.gang import MeetingPlace

from .program import Report, Task

STOPPED = "the executor was stopped"
"""The reason reported for a task that is lost because its slot was stopped."""


class Capabilities(Struct, frozen=True):
    """The properties that the planner and the dispatcher rely on."""

    name: str
    """Kind of executor: `local`, `lambda`, ..."""
    slots: int
    shares_host: bool
    """Workers map blocks of the driver's host."""
    payload_limit: int = 0
    """Bytes of a task payload; 0: no limit."""
    memory_limit: int = 0
    """Largest memory of an attempt, in bytes; 0: the host's memory."""
    time_limit: float = 0.0
    """Maximum seconds of an attempt; 0: no limit."""
    gangs: bool = False
    """Workers can hold connections to the driver and to each other. The executor is a `GangExecutor`."""
    files: bool = True
    """Workers read and write the files of the driver's machine."""
    temporary: int = 0
    """Bytes of the temporary folder, into which a run's code is unpacked; 0: not known."""
    sizes: tuple[int, ...] = ()
    """Available memory sizes in bytes, ascending; empty: any size up to the limit."""
    peers: bool = False
    """Workers keep their blocks and serve them to each other."""
    lacks: tuple[str, ...] = ()
    """Libraries that its workers do not have: `pyarrow`, `confluent_kafka`."""
    kept: float = 0.0
    """Seconds that an idle worker is kept and charged for; 0: idle workers cost nothing."""
    machine: str = ""
    """`aarch64` if a provider's price depends on it; empty: the provider's usual machine."""

    @property
    def kind(self) -> str:
        """The key of its prices."""
        return f"{self.name}/{self.machine}" if self.machine else self.name


class Slot(Protocol):
    """A place in which one task at a time can run."""

    name: str

    @property
    def task(self) -> str:
        """Id of the task that the slot's worker is running; empty: none.

        A dispatcher compares it with the task that it assigned. It ends a task that the slot has not confirmed for half
        a minute.
        """
        ...

    async def run(self, task: Task, report: Callable[[Report], None]) -> None:
        """Run the task; call `report` once for each partition, in order, as each ends.

        A failed partition is reported and the others continue. If the attempt as a whole ends early (worker lost, timed
        out, throttled), one Failure is reported for the running partition, and none for the remaining ones. An executor
        that receives all reports at the end of the attempt does not know that partition. Its Failure then names
        partition -1, unless the task has only one partition.

        Raises UsageError, before any partition runs, if the task exceeds the executor's payload limit; InternalError
        while another task runs; and any exception from `report`, after killing the attempt.

        Returns when the attempt is over and the slot is free. Cancelling kills the attempt.
        """
        ...

    async def stop(self) -> None:
        """End the running task, which is reported as lost. The slot accepts tasks afterwards."""
        ...


class Executor(Protocol):
    """A kind of worker: it starts slots and declares their capabilities."""

    capabilities: Capabilities

    @property
    def slots(self) -> Sequence[Slot]: ...

    async def start(self) -> None:
        """Make the slots ready. Idempotent."""
        ...

    async def stop(self) -> None:
        """End every worker; running attempts are killed."""
        ...


@runtime_checkable
class GangExecutor(Protocol):
    """The additional part of an executor whose slots run gangs.

    A task with `gang` is one member. Its slot starts it only if the tasks of all members start, or reports it as failed
    within a bounded time.
    """

    def gang_place(self, run: str) -> AbstractAsyncContextManager[MeetingPlace]:
        """How the members of the run's gangs meet, as long as the context is open. Raises WireError, UsageError."""
        ...
