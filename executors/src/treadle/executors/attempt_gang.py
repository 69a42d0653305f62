"""`context.gang` of an attempt: a damaged checkpoint, or a store that does not answer, is not the user's error."""

from __future__ import annotations

from typing import Any

from treadle.primitives.channels import GangContext
from treadle.primitives.errors import CorruptError, MissingError, StoreError

from .failures import InputFailed


class AttemptGang(GangContext):
    """See `GangContext`. Raises InputFailed instead of StoreError, CorruptError and MissingError."""

    @property
    def restored(self) -> Any:
        try:
            return super().restored
        except (CorruptError, MissingError) as error:
            raise InputFailed(error, (error.block,)) from error
        except StoreError as error:
            raise InputFailed(error) from error

    def checkpoint(self, state: Any, *, deadline: float | None = None) -> int:
        try:
            return super().checkpoint(state, deadline=deadline)
        except StoreError as error:
            raise InputFailed(error) from error
