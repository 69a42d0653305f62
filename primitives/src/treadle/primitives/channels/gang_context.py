"""The view that a user function has of its gang: `context.gang`."""

from __future__ import annotations

import copy
from typing import Any

from .member_scope import current_gang, current_member, restored_state


class GangContext:
    """The gang of the calling function. Raises UsageError outside of a gang."""

    def __init__(self) -> None:
        gang = current_gang()
        self.rank = gang.rank
        """0 .. size - 1; the partition."""
        self.size = gang.size
        self._deadline = gang.deadline

    @property
    def restored(self) -> Any:
        """This member's state in the checkpoint from which the gang starts, for the caller to change; None: the gang
        starts from the beginning.

        It is read on each access. Raises CorruptError, MissingError and StoreError.
        """
        return copy.deepcopy(restored_state())

    def checkpoint(self, state: Any, *, deadline: float | None = None) -> int:
        """Save this member's state, and return once the states of all members are on record together.

        Returns the number of the checkpoint: 1, 2, ... Raises DeadlinePassed (`deadline`, in seconds, defaults to the
        gang's), StoreError, DataError for a state that cannot be pickled, and UsageError when another member has ended
        without saving a state for this checkpoint. After DeadlinePassed the checkpoint may still be recorded; until
        then this member can save no other one.
        """
        return current_member().save_state(state, self._deadline if deadline is None else deadline)
