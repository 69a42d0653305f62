"""What services say of their triggers, kept in the store: `trigger list` reads it wherever it runs.

deployments/status/<instance>   statuses of the triggers that the service of that name runs, sealed

The object stays when its service ends, with the state `stopped`: the counts in it go on with the next service of that
name. It is written every few seconds, so a service that is killed forgets what it counted since.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

import msgspec
from msgspec.structs import asdict, replace

from treadle.primitives import sealing
from treadle.primitives.encoding.decoding import decoded
from treadle.primitives.errors import MissingError
from treadle.primitives.stores.store import Store

from .trigger_runner import Counts, TriggerStatus

STALE = 30.0
"""Seconds after which a report says that its service is gone."""
_STATUS = "deployments/status"


class Memory:
    """What earlier services of this name, and runners that ended, counted for each trigger."""

    def __init__(self) -> None:
        self._past: dict[tuple[str, str], Counts] = {}

    def add(self, status: TriggerStatus) -> None:
        """A runner ended with this status. Temporal itself counts the ticks of schedules."""
        if status.type != "schedule":
            key = status.workflow, status.trigger
            self._past[key] = self._past.get(key, Counts()) + status.counts

    def total(self, status: TriggerStatus) -> TriggerStatus:
        """With what was counted before."""
        past = self._past.get((status.workflow, status.trigger), Counts())
        return replace(status, **asdict(past + status.counts))

    def rest(self, known: Iterable[TriggerStatus]) -> list[TriggerStatus]:
        """Of triggers that are not among `known`: stopped."""
        there = {(one.workflow, one.trigger) for one in known}
        gone = [(key, counts) for key, counts in self._past.items() if key not in there]
        return [TriggerStatus(*key, "", 0, "stopped", **asdict(counts)) for key, counts in gone]


def write_statuses(store: Store, key: bytes, instance: str, statuses: list[TriggerStatus]) -> None:
    """For `trigger list` and `trigger show`, wherever they run."""
    _sealed(store, key).put(f"{_STATUS}/{instance}", msgspec.msgpack.encode(statuses))


def statuses_of(store: Store, key: bytes, instance: str) -> list[TriggerStatus]:
    """What the service of that name said last; empty: it never said anything."""
    name = f"{_STATUS}/{instance}"
    try:
        return decoded(list[TriggerStatus], name, _sealed(store, key).get(name))
    except MissingError:
        return []


def every_status(store: Store, key: bytes) -> dict[str, list[TriggerStatus]]:
    """Instance -> what it said last, also of services that have ended."""
    names = [info.name.rsplit("/", 1)[1] for info in store.list(f"{_STATUS}/")]
    return {name: statuses_of(store, key, name) for name in names}


def read_statuses(store: Store, key: bytes) -> dict[str, list[TriggerStatus]]:
    """What each service that runs now said last: instance -> statuses."""
    found = {name: [one for one in said if lives(one)] for name, said in every_status(store, key).items()}
    return {name: statuses for name, statuses in found.items() if statuses}


def lives(status: TriggerStatus) -> bool:
    """Whether the service that said so runs now."""
    return status.state != "stopped" and status.time > time.time() - STALE


def _sealed(store: Store, key: bytes) -> sealing.SealedStore:
    return sealing.SealedStore(store, sealing.purpose_key(key, b"treadle trigger status"))
