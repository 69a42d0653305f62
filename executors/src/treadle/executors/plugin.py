"""The plug-in interface of executors: a profile names a kind of executor, which opens an executor from its settings."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, TypeVar

import msgspec
from msgspec import Struct

from treadle.primitives import sealing
from treadle.primitives.errors import UsageError

from .interface import Executor
from .worker.environment import KEY_VARIABLE, secret_variable

ENTRY_POINTS = "treadle.executors"
"""Group of entry points (https://packaging.python.org/specifications/entry-points). The name of an entry point is a
kind; its object is an `ExecutorKind`."""

T = TypeVar("T")


def no_secret(name: str) -> str:
    """The default of `Place.secret`, for an executor without secrets."""
    raise UsageError(f"there is no secret {name!r}", "This executor was made without secrets.")


class Place(Struct, frozen=True):
    """The driver's resources that an executor uses."""

    store: str
    """URL of the store."""
    key_file: str
    """The deployment key, mode 0600."""
    host_root: str
    """The folder of host blocks; empty: none."""
    secret: Callable[[str], str] = no_secret
    """Returns a secret by name; raises UsageError if there is none."""
    environment: Mapping[str, str] | None = None
    """Environment variables for tasks, from which variables of the driver are withheld later. None: the driver's
    environment."""

    def run_key(self, run: str) -> bytes:
        return sealing.run_key(sealing.load_or_create_key(self.key_file), run)

    def function_environment(self, secrets: Iterable[str] = ()) -> dict[str, str]:
        """The variables that a `Handler` needs: the deployment key and these secrets. Raises UsageError for an unknown
        secret."""
        key = b64encode(sealing.load_or_create_key(self.key_file)).decode()
        return {KEY_VARIABLE: key} | {secret_variable(name): self.secret(name) for name in secrets}


class ExecutorKind(Protocol):
    """A kind of executor, such as a module that has these two functions."""

    def settings(self, table: Mapping[str, Any]) -> Any:
        """Parse the settings in a profile's table. Raises UsageError for an unknown key or an invalid value."""
        ...

    def open(self, settings: Any, place: Place) -> Executor:
        """An executor that is not started: its capabilities are known, but no process runs. Raises UsageError."""
        ...


def convert_table(table: Mapping[str, Any], kind: type[T]) -> T:
    """Convert the table to a Struct, which should set `forbid_unknown_fields`. Raises UsageError that names the wrong
    key."""
    try:
        return msgspec.convert(dict(table), kind)
    except msgspec.ValidationError as error:
        raise UsageError(str(error), "Mend the table.") from None
