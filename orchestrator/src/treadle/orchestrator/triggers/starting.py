"""What a trigger asks for, and what it hears: at most one run per id, whoever asks and however often."""

from __future__ import annotations

from typing import Any, Protocol

from msgspec import Struct


class StartOrder(Struct, frozen=True):
    """One run, wanted for one event or one batch of them."""

    run: str
    """Its id: a function of the event's identity alone."""
    workflow: str
    version: int
    """Of the deployment whose trigger decided."""
    trigger: str
    inputs: dict[str, Any]
    """Mapped, not yet checked against the workflow's declared inputs."""
    memo: dict[str, Any] = {}
    """Small facts a later owner of the trigger needs: of a batch its `end` and `count`."""


class Started(Struct, frozen=True):
    """The run exists, durably."""

    run: str
    new: bool
    """False: an earlier start of this id counts."""
    memo: dict[str, Any] = {}
    """Of the start that counts."""


class Starter(Protocol):
    """Starts runs of deployed workflows."""

    async def start(self, order: StartOrder) -> Started:
        """Raises Unreachable (try again for ever) and UsageError (these inputs will never do: a dead letter)."""
        ...

    async def active(self, workflow: str, trigger: str) -> int:
        """Runs of the trigger that are open. A hint: it may lag. Raises Unreachable."""
        ...

    async def wait(self, run: str) -> None:
        """Return when the run is over, however it ended. Raises Unreachable."""
        ...
