"""The segment of a gang: a `SegmentRun` for all partitions at once."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time

import msgspec

from treadle.executors.interface import GangExecutor
from treadle.executors.program import Failure, Outcome, Task
from treadle.primitives.channels.gang import Gang, MeetingPlace, folder_of
from treadle.primitives.errors import TreadleError, UsageError
from treadle.primitives.stores.shared_memory import HostFolder

from ..decisions.attempt_outcomes import Verdict
from ..decisions.dispatch import Assignment
from ..decisions.gang import GRACE, LEAVE, GangDispatch
from ..ledger.ledger import Failed, Lost, Started
from .gang_checkpoints import Checkpoints
from .segment import SegmentRun

_log = logging.getLogger(__name__)
CHANNEL_SECONDS = 60.0
"""The time limit of a channel operation when the stage has no `timeout`."""
NOWHERE = "Run the stage on an executor whose `gangs` capability holds: local, or functions with `members`."


class GangRun(SegmentRun):
    """Commits all partitions in one object of the ledger. If a part of them is lost, all of them run again."""

    _core: GangDispatch
    _gang = ""
    _place: MeetingPlace
    _checkpoints: Checkpoints
    _folders: tuple[str, ...] = ()
    """The folders of the gangs so far."""
    _ending: asyncio.TimerHandle | None = None
    """Dismisses the other members if the cause of a failure is not reported, or kills them if they do not leave."""
    _dismissed = False

    # -- set-up

    def _dispatch(self) -> GangDispatch:
        """A dispatch without `maxConcurrency`, since a gang's size is fixed.

        Raises UsageError when the number of partitions differs from the gang's size, or there are too few slots.
        """
        self._check()
        if 0 < len(self._committed) < len(self._inputs):
            self._account.enter(Lost(self.name, tuple(self._committed)))
        history, policy = self._history, self._segment.policy
        core = GangDispatch(policy, self._past(), committed=bool(self._committed))
        if history.cut_off and not policy.idempotent:
            core.stop()
            for partition in range(policy.gang):
                core.unknown(partition, history.starts.get(partition, 1))
        return core

    def _check(self) -> None:
        size, stage = self._segment.policy.gang, self._segment.stages[-1]
        if len(self._inputs) != size:
            count = f"{len(self._inputs)} partition{'s' * (len(self._inputs) != 1)}"
            raise UsageError(
                f"{stage}: its input has {count}, and `gang: {size}` needs exactly {size}",
                f"Write `partitions: {size}` where the partitions are made, or `gang: {len(self._inputs)}`.",
            )
        if len(self._pool.slots) < size:
            raise UsageError(
                f"{stage}: `gang: {size}` needs {size} slots at once, and there are {len(self._pool.slots)}",
                f"Set `slots = {size}` in the profile of this driver.",
            )

    async def _drive(self) -> None:
        if self._run.site.host is not None:
            self._folders = await asyncio.to_thread(self._left, self._run.site.host)
        executor = self._pool.executor
        if not isinstance(executor, GangExecutor):
            raise UsageError(f"{self.name}: slots of {executor.capabilities.name} run no gangs", NOWHERE)
        async with executor.gang_place(self._run.id) as self._place:
            self._checkpoints = Checkpoints(self._run, self._account, self._core, self._place.coordinator)
            try:
                await super()._drive()
            finally:
                self._let_be()
                self._checkpoints.close()
                await asyncio.to_thread(self._remove_rests)

    # -- called by the pool

    def together(self) -> int:
        return self._core.wanted(time.monotonic())

    def ended(self, slot: str, error: BaseException | None) -> None:
        verdict = self._core.verdict(slot, time.monotonic())
        if verdict is not None:
            self._judged(verdict)
        super().ended(slot, error)

    # -- parts

    def _left(self, host: HostFolder) -> tuple[str, ...]:
        """Folders of gangs that ran under a dead driver. They are removed together with this run's folders.
        Blocking."""
        parent, _, name = folder_of(self.name).rpartition("/")
        try:
            found = host.folders(self._run.blocks.on_host(parent))
        except TreadleError:
            return ()
        return tuple(f"{parent}/{one}" for one in found if one.startswith(f"{name}#"))

    async def _remove_losers(self) -> None:
        """Gangs have no rivals. Once they are on record, their checkpoints are of no use."""
        if self._complete() and self._error is None:
            await self._checkpoints.remove()

    def _remove_rests(self) -> None:
        """Remove the blocks that channels have left in the store, and killed members in shared memory. Blocking."""
        host, store = self._run.site.host, self._run.site.store
        try:
            for folder in self._folders:
                if host is not None:
                    host.delete_folder(self._run.blocks.on_host(folder))
                if not self._place.one_host:
                    store.delete_prefix(f"{self._run.files.prefix}/blocks/{folder}/")
        except (TreadleError, OSError) as error:
            _log.warning("what channels have left of their blocks goes with its run: %s", error)

    def _started(self, assignment: Assignment) -> None:
        """Record the start of all members with the first one, so that a dead driver never leaves a part of a gang."""
        (attempt,) = assignment.attempts
        if attempt.partition == 0:
            self._account.enter(Started(self.name, dict.fromkeys(range(self._core.size), attempt.number)))

    def _task(self, assignment: Assignment) -> Task:
        (attempt,) = assignment.attempts
        if attempt.partition == 0:
            self._gang = f"{self.name}#{attempt.number}.{secrets.token_hex(4)}"
            self._folders += (folder_of(self._gang),)
            self._checkpoints.begin(self._gang)
        place, rank, size = self._place, attempt.partition, self._core.size
        deadline = self._segment.policy.timeout or CHANNEL_SECONDS
        ways = (place.one_host, place.inbound, place.identity)
        gang = Gang(
            place.address, self._run.id, self._gang, rank, size, deadline, *ways, *self._checkpoints.start_of(rank)
        )
        return msgspec.structs.replace(super()._task(assignment), gang=gang)

    def _outcome(self, slot: str, outcome: Outcome) -> None:
        self._log.add(outcome, slot)
        self._read_by(slot, outcome.partition)
        whole = self._core.delivered(outcome)
        self._checkpoints.refuse()
        if whole:
            self._commit(*whole)

    def _failure(self, slot: str, failure: Failure) -> None:
        self._log.add(failure, slot)
        if self._core.broke(slot, failure):
            self._dismiss()
        elif self._ending is None:
            self._ending = asyncio.get_running_loop().call_later(GRACE, self._dismiss)

    def _judged(self, verdict: Verdict) -> None:
        self._let_be()
        self._retried += not verdict.final
        cause = verdict.failure
        self._run.tell_failed(self._segment, cause, final=verdict.final)
        kind, size = str(cause.failure), self._core.size
        told = f"ended with partition {cause.partition} of its gang: {cause.message}"
        messages = [cause.message if partition == cause.partition else told for partition in range(size)]
        self._account.enter(
            *(
                Failed(self.name, partition, cause.attempt, kind, message[:1000], verdict.final, verdict.spent)
                for partition, message in enumerate(messages)
            )
        )
        if self._checkpoints.damaged(cause.lost):
            self._core.lost.difference_update(cause.lost)
        elif cause.lost:
            self._core.stop()
            self._note_hosts(cause)

    def _dismiss(self) -> None:
        """Have the other members leave, so that their processes can take part in the next attempt."""
        if not self._dismissed:
            self._let_be()
            self._dismissed = True
            self._place.coordinator.dismiss_gang(self._run.id, self._gang)
            self._ending = asyncio.get_running_loop().call_later(LEAVE, self._kill_all)

    def _kill_all(self) -> None:
        self._pool.abort(self, self._pool.slots_of(self))

    def _let_be(self) -> None:
        self._dismissed = False
        if self._ending is not None:
            self._ending.cancel()
            self._ending = None
