"""Shards with one rule left out. The checker must find each: this tests the tests."""

from __future__ import annotations

from treadle.primitives.objects import messages as m
from treadle.primitives.objects.followers import NEVER
from treadle.primitives.objects.instructions import Instruction
from treadle.primitives.objects.shard import Shard
from treadle.primitives.objects.state import State

# private: each class replaces the one method that keeps the rule


class AnswersEarly(Shard):
    """Answers before the backups have the call."""

    def _tick_primary(self, state: State) -> None:
        self.committed = state.index
        super()._tick_primary(state)


class ForgetsCalls(Shard):
    """Runs a repeated call again."""

    def from_client(self, connection: int, message: m.FromClient, now: float) -> list[Instruction]:
        if (
            isinstance(message, m.MethodCall)
            and self.state
            and isinstance(self.state.sessions.get(message.session), m.MethodAnswer)
        ):
            self.state.sessions[message.session] = None
        return super().from_client(connection, message, now)


class ReadsWithoutLease(Shard):
    """Answers reads although another keeper may be primary."""

    def _forget(self) -> None:
        super()._forget()
        # private: the lease is the rule that is left out
        self._followers.lease = lambda: float("inf")  # type: ignore[method-assign]


class ServesAtOnce(Shard):
    """Answers as the new primary while the earlier one may still read."""

    def _lead(self, serves_from: float) -> None:
        super()._lead(NEVER)


class SkipsEntries(Shard):
    """As a backup, applies entries after a gap."""

    def _take_entries(self, message: m.Replicate, state: State) -> tuple[int, bytes] | None:
        found = super()._take_entries(message, state)
        state.index = max(state.index, message.first + len(message.entries) - 1)
        return found


class ResignsEarly(Shard):
    """Lets another member lead that lacks entries."""

    def _spread(self, state: State) -> None:
        self._followers.common = lambda state: state.index  # type: ignore[method-assign]
        super()._spread(state)
        del self._followers.common


MUTATIONS = [AnswersEarly, ForgetsCalls, ReadsWithoutLease, ResignsEarly, ServesAtOnce, SkipsEntries]
