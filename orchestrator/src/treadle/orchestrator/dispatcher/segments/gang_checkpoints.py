"""The checkpoints of a gang: the states that all its members save become one record of the ledger.

A member gets its answer once the record is written. A damaged state takes its checkpoint back: the next attempt starts
from the one before it, or from the beginning.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from treadle.primitives.asyncio_tasks import spawn
from treadle.primitives.channels.errors import rank_of
from treadle.primitives.channels.gang import STATES
from treadle.primitives.encoding.references import BlockRef
from treadle.primitives.errors import StoreError

from ..decisions.gang import GangDispatch
from ..driver_context.run_context import RunContext
from ..ledger.ledger import Fenced, GangCheckpoint
from ..ledger.ledger_state import Account

if TYPE_CHECKING:
    from treadle.primitives.coordinator import StateSaved
    from treadle.primitives.coordinator.server import CoordinatorServer

_log = logging.getLogger(__name__)


class Checkpoints:
    """For one run of the gang's segment, in its event loop."""

    def __init__(self, run: RunContext, account: Account, core: GangDispatch, coordinator: CoordinatorServer) -> None:
        self._run, self._account, self._core, self._coordinator = run, account, core, coordinator
        self._gang = ""
        self._recorded = self._next = 0
        """Numbers of the last checkpoint on record, and of the one for which states are collected."""
        self._waiting: dict[int, str] = {}
        """Rank -> the member that has saved its state for that checkpoint."""
        self._records: set[asyncio.Task[None]] = set()
        self._may_leave_states = bool(account.history.starts)

    def begin(self, gang: str) -> None:
        """An attempt begins: its name."""
        self.close()
        self._gang, self._recorded = gang, max(self._account.history.checkpoints, default=0)
        self._next = self._recorded + 1
        self._waiting.clear()
        self._coordinator.own(self._run.id, gang, self._saved)

    def start_of(self, rank: int) -> tuple[int, BlockRef | None]:
        """The checkpoint from which a member of this attempt starts, and its state."""
        states = self._account.history.checkpoints.get(self._recorded)
        return self._recorded, states[rank] if states else None

    def refuse(self) -> None:
        """Answer the members that wait for one that has ended."""
        early = self._core.ended_early
        if early is not None:
            self._answer(self._next, self._waiting, f"member {early} has ended without it")

    def damaged(self, lost: tuple[str, ...]) -> bool:
        """Take back the checkpoints with these blocks. Returns whether there are states among the blocks."""
        for number, states in self._account.history.checkpoints.items():
            if any(state.name in lost for state in states):
                _log.warning("%s: checkpoint %d is damaged: %s", self._account.name, number, ", ".join(lost))
                self._account.enter(GangCheckpoint(self._account.name, number, ()))
        return any(name.startswith(f"{STATES}/") for name in lost)

    async def remove(self) -> None:
        """Remove all states, once the gang's commit is on record. Raises Fenced, StoreError."""
        if self._may_leave_states:
            await self._account.writer.synced()
            await asyncio.gather(*self._records)
            await asyncio.to_thread(self._tidy, self._next, frozenset[str]())

    def close(self) -> None:
        """Members save no more states."""
        self._coordinator.disown(self._run.id, self._gang)
        for task in self._records:
            task.cancel()

    # -- parts

    def _saved(self, saved: StateSaved) -> None:
        if saved.checkpoint != self._next:
            if saved.checkpoint <= self._recorded:  # its answer was lost with a connection
                self._answer(saved.checkpoint, {0: saved.member})
            return
        rank = int(rank_of(saved.member))
        self._may_leave_states = True
        self._waiting[rank] = saved.member
        states = self._core.saved(rank, saved.state)
        if states:
            record, members = GangCheckpoint(self._account.name, self._next, states), self._waiting
            self._next, self._waiting = self._next + 1, {}
            task = spawn(self._record(record, members), name=f"checkpoint {record.number} of {record.segment}")
            self._records.add(task)
            task.add_done_callback(self._records.discard)
        self.refuse()

    async def _record(self, record: GangCheckpoint, members: dict[int, str]) -> None:
        try:
            self._account.enter(record)
            await self._account.writer.synced()
        except (Fenced, StoreError):
            return  # the segment ends with this error
        self._recorded = record.number
        self._answer(record.number, members)
        kept = frozenset(state.name for states in self._account.history.checkpoints.values() for state in states)
        if any("store" in state.locations for state in record.states):
            await asyncio.to_thread(self._tidy, record.number, kept)

    def _answer(self, number: int, members: dict[int, str], refused: str = "") -> None:
        for member in members.values():
            self._coordinator.answer(self._run.id, member, number, refused)

    def _tidy(self, last: int, kept: frozenset[str]) -> None:
        """Remove the states of the checkpoints up to `last`, except those to keep. Blocking. A state that cannot be
        removed stays until its run is removed."""
        blocks, store = f"{self._run.files.prefix}/blocks/", self._run.site.store
        folder = f"{blocks}{STATES}/{self._account.name}/"

        def goes(name: str) -> bool:
            number = name.removeprefix(folder).partition(".")[0]
            return number.isdigit() and int(number) <= last and name.removeprefix(blocks) not in kept

        try:
            store.delete([info.name for info in store.list(folder) if goes(info.name)])
        except StoreError as error:
            _log.warning("states of earlier checkpoints stay: %s", error)
