"""The executors of a driver: one for each table of the profile, and `local`, which every driver has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from treadle.dsl.units import format_size
from treadle.executors.interface import Capabilities, Executor
from treadle.executors.plugin import ENTRY_POINTS, ExecutorKind, Place
from treadle.executors.resident import MEMBERS
from treadle.primitives.errors import TreadleError, UsageError

from ..environment.home import Home
from ..environment.kafka_connections import with_connections
from ..environment.profile import Profile
from ..environment.task_environment import task_variables
from .builtin_executors import KINDS

LOCAL = "local"
"""The executor that needs no table."""


class ExecutorRegistry(Mapping[str, Executor]):
    """Executors by name. Each is opened at its first look-up, and not started.

    `self[name]` raises UsageError for a wrong table, and KeyError for an unknown name. Resident functions are found
    under `NAME/members` and are not listed: a plan chooses between the two.
    """

    def __init__(self, tables: Mapping[str, Mapping[str, Any]], place: Place) -> None:
        self._tables = {LOCAL: {"kind": LOCAL}, **tables}
        self._place = place
        self._open: dict[str, Executor] = {}

    def __getitem__(self, name: str) -> Executor:
        if name.endswith(MEMBERS):
            return self._members(name.removesuffix(MEMBERS))
        if name not in self._open:
            self._open[name] = self._opened(name, self._tables[name])
        return self._open[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tables)

    def __len__(self) -> int:
        return len(self._tables)

    def _members(self, name: str) -> Executor:
        found: Executor | None = getattr(self[name], "members", None)
        if found is None:
            raise KeyError(name + MEMBERS)
        return found

    def _opened(self, name: str, table: Mapping[str, Any]) -> Executor:
        try:
            kind = find_kind(str(table.get("kind", name)))
            keys = {key: value for key, value in table.items() if key != "kind"}
            return kind.open(kind.settings(keys), self._place)
        except TreadleError as error:
            raise UsageError(f"executor {name!r} of the profile: {error.message}", error.hint) from error


class Abilities(Mapping[str, Capabilities]):
    """The capabilities of executors by name. An executor is opened at its first look-up."""

    def __init__(self, places: Mapping[str, Executor]) -> None:
        self._places = places

    def __getitem__(self, name: str) -> Capabilities:
        return self._places[name].capabilities

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


def open_places(home: Home, profile: Profile, slots: int | None = None) -> ExecutorRegistry:
    """The executors of a profile. `slots`: of `local`, in place of the profile's own number."""
    secret = with_connections(profile.kafka, home.secret)
    place = Place(profile.store_url(home), str(home.key), str(home.host_root), secret, task_variables(profile))
    return ExecutorRegistry({LOCAL: _local(profile, slots), **profile.executors}, place)


def _local(profile: Profile, slots: int | None) -> dict[str, Any]:
    known = {"slots": slots or profile.slots, "memory": format_size(profile.memory) if profile.memory else None}
    return {"kind": LOCAL, **{key: value for key, value in known.items() if value is not None}}


def find_kind(name: str) -> ExecutorKind:
    """A kind that comes with treadle, or a kind of an entry point. Raises UsageError when there is neither."""
    if name in KINDS:
        return KINDS[name]
    found = {point.name: point for point in entry_points(group=ENTRY_POINTS)}
    if name not in found:
        known = ", ".join(sorted({*KINDS, *found}))
        raise UsageError(f"there is no kind of executor {name!r}", f"There are: {known}. Others come by plug-ins.")
    return _loaded(found[name])


def _loaded(point: EntryPoint) -> ExecutorKind:
    try:
        kind: ExecutorKind = point.load()
    except Exception as error:  # a plug-in may raise anything at import
        raise UsageError(
            f"the plug-in {point.value} cannot be imported: {type(error).__name__}: {error}", "Mend or remove it."
        ) from error
    if not (callable(getattr(kind, "settings", None)) and callable(getattr(kind, "open", None))):
        raise UsageError(f"the plug-in {point.value} is no kind of executor", "It needs `settings` and `open`.")
    return kind
