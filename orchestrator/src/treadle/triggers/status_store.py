"""Reports of services about their triggers, kept in the store: `trigger list` reads them on any machine.

    deployments/status/<instance>   statuses of the triggers that the service of that name runs, sealed

The object stays when its service ends, with the state `stopped`; the next service of that name continues its counts. It
is written every few seconds, so a killed service loses its latest counts.
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
"""Age in seconds at which a report shows that its service is gone."""
_STATUS = "deployments/status"


class StatusStore:
    """Counts of earlier services of this name, and of ended runners, for each trigger."""

    def __init__(self) -> None:
        self._past: dict[tuple[str, str], Counts] = {}

    def add(self, status: TriggerStatus) -> None:
        """Add the counts of an ended runner. Temporal itself counts the ticks of schedules."""
        if status.type != "schedule":
            key = status.workflow, status.trigger
            self._past[key] = self._past.get(key, Counts()) + status.counts

    def total(self, status: TriggerStatus) -> TriggerStatus:
        """The status including the earlier counts."""
        past = self._past.get((status.workflow, status.trigger), Counts())
        return replace(status, **asdict(past + status.counts))

    def rest(self, known: Iterable[TriggerStatus]) -> list[TriggerStatus]:
        """Statuses of triggers that are not in `known`: stopped."""
        there = {(one.workflow, one.trigger) for one in known}
        gone = [(key, counts) for key, counts in self._past.items() if key not in there]
        return [TriggerStatus(*key, "", 0, "stopped", **asdict(counts)) for key, counts in gone]


def write_statuses(store: Store, key: bytes, instance: str, statuses: list[TriggerStatus]) -> None:
    """Write the statuses for `trigger list` and `trigger show`."""
    _sealed(store, key).put(f"{_STATUS}/{instance}", msgspec.msgpack.encode(statuses))


def statuses_of(store: Store, key: bytes, instance: str) -> list[TriggerStatus]:
    """The last report of the service of that name; empty: there is none."""
    name = f"{_STATUS}/{instance}"
    try:
        return decoded(list[TriggerStatus], name, _sealed(store, key).get(name))
    except MissingError:
        return []


def every_status(store: Store, key: bytes) -> dict[str, list[TriggerStatus]]:
    """Instance -> its last report, including ended services."""
    names = [info.name.rsplit("/", 1)[1] for info in store.list(f"{_STATUS}/")]
    return {name: statuses_of(store, key, name) for name in names}


def lives(status: TriggerStatus) -> bool:
    """Whether the service that wrote the status is running."""
    return status.state != "stopped" and status.time > time.time() - STALE


def _sealed(store: Store, key: bytes) -> sealing.SealedStore:
    return sealing.SealedStore(store, sealing.purpose_key(key, b"treadle trigger status"))
