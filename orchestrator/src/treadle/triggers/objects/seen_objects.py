"""Records of polling in the store: the objects it has seen, and objects that cannot start a run.

    deployments/objects/<workflow>/<trigger>/seen/<version>   marks (see listing_diff); the version added the prefix
    deployments/objects/<workflow>/<trigger>/refused/<id>     a RefusedObject

They are sealed under the deployment key. Seen objects are saved **after** their starts. After a crash in between, the
starts are requested again, and the server rejects them as known.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from treadle.dsl.triggers import ObjectTrigger
from treadle.primitives import sealing
from treadle.primitives.encoding.decoding import known
from treadle.primitives.errors import CorruptError, MissingError
from treadle.primitives.events import Event
from treadle.primitives.stores.store import Store

from ..registry.deployment import Deployment
from .listing_diff import HandledObjects


class RefusedObject(Struct, frozen=True):
    """An object that cannot start a run: the dead letter of a trigger without a topic for dead letters."""

    event: Event
    reason: str
    run: str
    """The id that its run would have."""
    version: int
    time: float
    """Seconds since the epoch."""


class ObjectRecords:
    """The records of one trigger. Blocking; every method raises StoreError."""

    def __init__(self, store: Store, key: bytes, workflow: str, trigger: str) -> None:
        self._store = store
        self._objects = sealing.SealedStore(store, sealing.purpose_key(key, b"treadle object triggers"))
        self._folder = f"deployments/objects/{workflow}/{trigger}"

    def load(self, born: int) -> HandledObjects | None:
        """None: it never polled. Raises CorruptError for marks that this deployment did not write."""
        name = self._seen(born)
        try:
            return HandledObjects.unpack(bytes(self._objects.get(name)))
        except MissingError:
            return None
        except ValueError as error:
            raise CorruptError(f"{name}: {error}", "Remove it: what is there then counts by its date.") from None

    def save(self, born: int, seen: HandledObjects) -> None:
        """Another service may save its marks at the same time. The last write stays; objects missing there are only
        requested again."""
        self._objects.put(self._seen(born), seen.pack())
        seen.changed = False

    def refuse(self, refused: RefusedObject) -> None:
        self._objects.put(f"{self._folder}/refused/{refused.event.id}", msgspec.json.encode(refused))

    def refused(self) -> list[RefusedObject]:
        """Oldest first."""
        names = [info.name for info in self._store.list(f"{self._folder}/refused/")]
        found = [msgspec.json.decode(self._objects.get(name), type=known(RefusedObject)) for name in names]
        return sorted(found, key=lambda one: one.time)

    def _seen(self, born: int) -> str:
        return f"{self._folder}/seen/{born}"


def born(history: Sequence[Deployment], trigger: str) -> Deployment:
    """The version that began to poll the current prefix, in an unbroken sequence up to the newest version.

    `history`: oldest first; the newest has the trigger.
    """
    newest = history[-1]
    place = _polled(newest, trigger)
    for deployment in reversed(history):
        if deployment.removed or _polled(deployment, trigger) != place:
            break
        newest = deployment
    return newest


def _polled(deployment: Deployment, trigger: str) -> str | None:
    found = None if deployment.removed else deployment.spec.triggers.get(trigger)
    return found.poll.uri if isinstance(found, ObjectTrigger) and found.poll else None
