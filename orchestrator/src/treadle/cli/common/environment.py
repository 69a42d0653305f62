"""The environment of a command: that of clients, with the registry of deployed workflows."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from treadle.client.environment import ClientEnvironment

from .hints import remember

if TYPE_CHECKING:
    from temporalio.client import Client

    from treadle.triggers.registry.registry import Registry
    from treadle.triggers.starter import RunStarter


class Environment(ClientEnvironment):
    """Opened once for each command. Suggested commands name its profile."""

    def __init__(self, profile: str | None = None, home: Path | None = None) -> None:
        remember(profile)
        super().__init__(profile, home)

    @cached_property
    def registry(self) -> Registry:
        from treadle.triggers.registry.registry import Registry

        return Registry(self.store, self.key)

    async def starter(self, client: Client) -> RunStarter:
        """The object that starts runs for events."""
        from treadle.triggers.starter import RunStarter, ensure_search_attribute

        await ensure_search_attribute(client)
        return RunStarter(client, self.runs_of(client), self.registry, self.profile.allow)


def need(*modules: str) -> None:
    """Raises UsageError for a library of the extra `triggers` that is not installed."""
    from importlib.util import find_spec

    from treadle.primitives.errors import UsageError

    missing = [name for name in modules if find_spec(name) is None]
    if missing:
        text = f"events need {' and '.join(missing)}, which is not installed"
        raise UsageError(text, "pip install 'treadle-orchestrator[triggers]'")
