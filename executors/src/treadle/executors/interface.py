"""The executor interface: what a place where tasks run must offer. Everything else about it is its own business."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec import Struct

from .program import Report, Task

STOPPED = "the executor was stopped"
"""Why a task is reported as lost when its slot is stopped."""


class Capabilities(Struct, frozen=True):
    """What the planner and the dispatcher may rely on."""

    name: str
    """Kind of executor: `local`, `lambda`, ..."""
    slots: int
    shares_host: bool
    """Workers map blocks of the driver's host."""
    payload_limit: int = 0
    """Bytes of a task payload; 0: no limit."""
    memory_limit: int = 0
    """Bytes the largest attempt may have; 0: the host's."""
    time_limit: float = 0.0
    """Seconds an attempt may take; 0: no limit."""
    gangs: bool = False
    """Workers can hold connections to the driver and to each other."""
    files: bool = True
    """Workers read and write the files of the driver's machine."""
    temporary: int = 0
    """Bytes of the temporary folder, into which a run's code is unpacked; 0: not said."""
    sizes: tuple[int, ...] = ()
    """Bytes of memory there are to choose from, ascending; empty: any up to the limit."""
    peers: bool = False
    """Workers keep their blocks, and serve them to each other."""
    lacks: tuple[str, ...] = ()
    """Libraries that its workers do not have: `pyarrow`, `confluent_kafka`."""
    kept: float = 0.0
    """Seconds that a worker without a task is kept, and charged for; 0: none is charged for without a task."""
    machine: str = ""
    """`aarch64` where a provider's price depends on it; empty: the provider's usual one."""

    @property
    def kind(self) -> str:
        """What its prices are listed under."""
        return f"{self.name}/{self.machine}" if self.machine else self.name


class Slot(Protocol):
    """One place where one task at a time can run."""

    name: str

    @property
    def task(self) -> str:
        """Id of the task that it has, empty: none. This is what the slot knows of its worker: a dispatcher compares
        it with what it has given the slot, and ends a task of which the slot says nothing for half a minute."""
        ...

    async def run(self, task: Task, report: Callable[[Report], None]) -> None:
        """Run the task; call `report` once for each partition, in order, as each ends.

        A partition that fails is reported and the rest go on. If the attempt as a whole ends early (worker lost,
        timed out, throttled) one Failure is reported for the partition under way and the remaining ones are not
        reported. An executor that hears of an attempt only at its end cannot tell which partition that was: its
        Failure names partition -1, unless there was only one. Raises UsageError, before anything runs, for a task that
        does not fit into the executor's payload; InternalError while another task runs; and what `report` raises,
        having killed the attempt.

        Returns when the attempt is over and the slot is free. Cancelling kills the attempt.
        """
        ...

    async def stop(self) -> None:
        """End what it has, which is reported as lost. It takes tasks afterwards."""
        ...


class Executor(Protocol):
    """A kind of worker; starts slots and states what they can do."""

    capabilities: Capabilities

    @property
    def slots(self) -> Sequence[Slot]: ...

    async def start(self) -> None:
        """Make the slots ready. Idempotent."""
        ...

    async def stop(self) -> None:
        """End every worker; running attempts are killed."""
        ...
