"""The kinds of executor that come with treadle, and what their tables in a profile may say.

[lab.executors.big]
kind = "local"
slots = 2
memory = "24GiB"
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Generic, TypeVar

from msgspec import Struct
from pydantic import Field, ValidationError

from treadle.dsl.quantities import Size
from treadle.executors.interface import Executor
from treadle.executors.place import Place
from treadle.primitives.errors import UsageError

from ..environment.home import secret_variable
from ..environment.profile import Settings, reasons

S = TypeVar("S", bound=Settings)


class LocalSettings(Settings):
    """Processes on the driver's machine."""

    slots: Annotated[int, Field(ge=1)] | None = None
    """Tasks at a time; None: the number of processors."""
    memory: Size | None = None
    """Bytes for all slots together; None: what the machine has."""


class IsolatedSettings(Settings):
    """A fresh process for every attempt, which shares only the store with the driver."""

    slots: Annotated[int, Field(ge=1)] = 2
    memory: Size = 0
    """Bytes that one attempt may allocate; 0: no limit."""
    secrets: tuple[str, ...] = ()
    """Names of the secrets that attempts may use."""


def open_local(settings: LocalSettings, place: Place) -> Executor:
    from treadle.executors.local.executor import LocalExecutor

    share = settings.memory // (settings.slots or os.cpu_count() or 1) if settings.memory else None
    return LocalExecutor(
        run_key=place.run_key,
        slots=settings.slots,
        memory=share,
        host_root=place.host_root or None,
        secrets=place.secret,
    )


def open_isolated(settings: IsolatedSettings, place: Place) -> Executor:
    from treadle.executors.isolated.executor import IsolatedExecutor
    from treadle.executors.worker.environment import worker_environment

    secrets = {secret_variable(name): place.secret(name) for name in settings.secrets}
    return IsolatedExecutor(
        key_file=place.key_file,
        slots=settings.slots,
        memory=settings.memory,
        environment=worker_environment(os.environ) | secrets,
    )


class BuiltIn(Struct, Generic[S], frozen=True):
    """A `Kind` (`treadle.executors.place`) whose table is a Pydantic model."""

    model: type[S]
    make: Callable[[S, Place], Executor]

    def settings(self, table: Mapping[str, Any]) -> S:
        try:
            return self.model.model_validate(dict(table))
        except ValidationError as error:
            raise UsageError(reasons(error), "Mend the table.") from None

    def open(self, settings: S, place: Place) -> Executor:
        return self.make(settings, place)


KINDS: Mapping[str, BuiltIn[Any]] = {
    "local": BuiltIn(LocalSettings, open_local),
    "isolated": BuiltIn(IsolatedSettings, open_isolated),
}
