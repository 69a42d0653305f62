"""What an executor is opened with, and what a kind of executor must offer to be named in a profile."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

import msgspec
from msgspec import Struct

from treadle.primitives import sealing
from treadle.primitives.errors import UsageError

from .interface import Executor

ENTRY_POINTS = "treadle.executors"
"""Group of entry points (https://packaging.python.org/specifications/entry-points): `name` is a kind, the object a
`Kind`."""

T = TypeVar("T")


def no_secret(name: str) -> str:
    """For who was made without secrets."""
    raise UsageError(f"there is no secret {name!r}", "This executor was made without secrets.")


class Place(Struct, frozen=True):
    """Where an executor finds what its driver has."""

    store: str
    """URL of the store."""
    key_file: str
    """The deployment key, mode 0600."""
    host_root: str
    """The folder of host blocks; empty: there is none."""
    secret: Callable[[str], str] = no_secret
    """A secret by its name; raises UsageError where there is none."""
    environment: Mapping[str, str] | None = None
    """The variables of tasks, before those that belong to the driver are withheld; None: the driver's."""

    def run_key(self, run: str) -> bytes:
        return sealing.run_key(sealing.load_or_create_key(self.key_file), run)


class Kind(Protocol):
    """A kind of executor. A module with these two functions is one."""

    def settings(self, table: Mapping[str, Any]) -> Any:
        """What the keys of a profile's table mean. Raises UsageError for a key or value it does not take."""
        ...

    def open(self, settings: Any, place: Place) -> Executor:
        """An executor that is not started: its capabilities are known, nothing runs. Raises UsageError."""
        ...


def convert_table(table: Mapping[str, Any], kind: type[T]) -> T:
    """The table as a Struct (give it `forbid_unknown_fields`); UsageError says which key is wrong."""
    try:
        return msgspec.convert(dict(table), kind)
    except msgspec.ValidationError as error:
        raise UsageError(str(error), "Mend the table.") from None
