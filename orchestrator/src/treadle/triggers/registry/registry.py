"""Stores deployments: an append-only chain of versions for each workflow.

    deployments/workflows/<workflow>/versions/<n>       a Deployment
    deployments/workflows/<workflow>/begins/<n>         its start offsets, written once the version exists
    deployments/workflows/<workflow>/paused/<trigger>   exists while the trigger is paused
    deployments/aside/<workflow>/<trigger>              exists while no service may run the trigger, for a short time
    deployments/bundles/<digest>                        user code, shared by the versions that need it and their runs

Every object is sealed under the deployment key. Versions are created if absent. Of two concurrent deployments one gets
the number; the other compares its content with the new version.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from treadle.executors.program import SharedCode
from treadle.primitives import sealing
from treadle.primitives.encoding.decoding import decoded
from treadle.primitives.errors import MissingError, TreadleError, UsageError
from treadle.primitives.stores.store import Store

from .deployment import Deployment, Paused, Position

_ROOT = "deployments"
_WORKFLOWS = f"{_ROOT}/workflows"
_ASIDE = f"{_ROOT}/aside"
ASIDE_LASTS = 120.0
"""Seconds."""
_SAME = ("document", "functions", "bundle", "base", "executor")
"""Fields whose equality makes two versions the same."""


class NoSuchDeployment(TreadleError):
    """No workflow, version or trigger of that name is deployed."""


class DeploymentCandidate(Struct, frozen=True):
    """The content of a possible deployment."""

    document: dict[str, Any]
    functions: dict[str, dict[str, Any]]
    bundle: str
    code: bytes
    """The bundle's bytes; empty without user code."""
    base: str
    executor: str = ""


class Registry:
    """The deployed workflows of one store. Versions are immutable, so each is read once."""

    def __init__(self, store: Store, key: bytes) -> None:
        self._store = store
        self._objects = sealing.SealedStore(store, sealing.purpose_key(key, b"treadle registry"))
        self._known: dict[str, Deployment] = {}
        self._shared: dict[str, SharedCode] = {}

    # -- versions

    def deploy(
        self,
        candidate: DeploymentCandidate,
        begins: Callable[[Deployment | None], dict[str, tuple[Position, ...]]] = lambda _: {},
    ) -> Deployment:
        """Make the candidate the newest version, unless that has the same content; return the newest version.

        `begins` returns the start offsets of the new version (see Deployment.begins). It is called twice with the
        current version: first beforehand, so that an error stops the deployment, and again when the new version is
        visible to every process. Raises StoreError, and the errors of `begins`.
        """
        workflow = str(candidate.document["name"])
        while True:
            newest = self._newest(workflow)
            before = None if newest is None or newest.removed else newest
            made = self._next(candidate, newest)
            if before is not None and alike(before, made):
                return before
            begins(before)
            if candidate.code:
                self._objects.create(_bundle_name(candidate.bundle), candidate.code)
            if self._add(made):
                return self.settle(made, begins(before))

    def settle(self, deployment: Deployment, begins: dict[str, tuple[Position, ...]]) -> Deployment:
        """Record the start offsets of a version, unless they are recorded; the first record counts.

        Measure them after the version exists. A process that holds a later record, and reads the registry then, sees
        the version. Therefore no record is ever decided by the previous version.
        """
        name = _begins_name(deployment.workflow, deployment.version)
        self._objects.create(name, msgspec.msgpack.encode(begins))
        return self._version(deployment.workflow, deployment.version)

    def undeploy(self, workflow: str) -> Deployment:
        """Mark the workflow as not deployed. Its versions stay, because their runs may be open.

        Returns the previous newest version. Raises NoSuchDeployment.
        """
        while True:
            newest = self.deployment(workflow)
            number = newest.version + 1
            made = replace(newest, version=number, removed=True, time=time.time(), nonce=_nonce(), begins=None)
            if self._add(made):
                self.settle(made, {})
                for trigger in self.paused(workflow):
                    self.unpause(workflow, trigger)
                return newest

    def deployment(self, workflow: str, version: int | None = None) -> Deployment:
        """A version, by default the newest. Raises NoSuchDeployment."""
        if version is not None:
            return self._version(workflow, version)
        newest = self._newest(workflow)
        if newest is None:
            raise NoSuchDeployment(f"no workflow {workflow!r} is deployed", "Deploy it: treadle deploy FILE")
        if newest.removed:
            text = f"the workflow {workflow!r} was undeployed (version {newest.version})"
            raise NoSuchDeployment(text, "Deploy it again: treadle deploy FILE")
        return newest

    def find(self, workflow: str) -> Deployment | None:
        """The newest version; None: it is not deployed."""
        newest = self._newest(workflow)
        return None if newest is None or newest.removed else newest

    def draft(self, candidate: DeploymentCandidate) -> Deployment:
        """The version that `deploy` would create now."""
        return self._next(candidate, self._newest(str(candidate.document["name"])))

    def deployments(self) -> list[Deployment]:
        """The newest version of each deployed workflow, by name. It takes one listing, and reads new versions only."""
        newest: dict[str, int] = {}
        for workflow, version in self._versions(_WORKFLOWS):
            newest[workflow] = max(version, newest.get(workflow, 0))
        found = (self._version(workflow, version) for workflow, version in sorted(newest.items()))
        return [one for one in found if not one.removed]

    def history(self, workflow: str) -> list[Deployment]:
        """Every version of a workflow, oldest first, removals too; empty: never deployed."""
        numbers = sorted(version for _, version in self._versions(f"{_WORKFLOWS}/{workflow}"))
        return [self._version(workflow, number) for number in numbers]

    def bundle(self, deployment: Deployment) -> bytes:
        """The user's code of a version; empty when it has none. Raises MissingError."""
        return bytes(self._objects.get(_bundle_name(deployment.bundle))) if deployment.bundle else b""

    def shared(self, deployment: Deployment) -> SharedCode | None:
        """A reference to the code, for runs of the version: deployed code is never removed. Raises MissingError."""
        digest = deployment.bundle
        if digest and digest not in self._shared:
            known = hashlib.sha256(self.bundle(deployment)).hexdigest()
            self._shared[digest] = SharedCode(_bundle_name(digest), known)
        return self._shared.get(digest)

    # -- pauses

    def pause(self, workflow: str, trigger: str, reason: str = "") -> bool:
        """False: it is already paused."""
        name = _pause_name(workflow, trigger)
        return self._objects.create(name, msgspec.msgpack.encode(Paused(time.time(), reason)))

    def unpause(self, workflow: str, trigger: str) -> bool:
        """False: it was not paused."""
        name = _pause_name(workflow, trigger)
        there = self._store.head(name) is not None
        self._store.delete([name])
        return there

    def paused(self, workflow: str) -> dict[str, Paused]:
        """Trigger -> its pause."""
        found: dict[str, Paused] = {}
        for info in self._store.list(f"{_WORKFLOWS}/{workflow}/paused/"):
            try:
                found[info.name.rsplit("/", 1)[1]] = decoded(Paused, info.name, self._objects.get(info.name))
            except MissingError:
                continue  # unpaused since it was listed
        return found

    # -- handing over

    @contextmanager
    def set_aside(self, workflow: str, trigger: str) -> Iterator[None]:
        """Make services release the trigger and its consumer group, within seconds.

        They take it up again afterwards, or after ASIDE_LASTS if this process dies. Raises StoreError.
        """
        name = f"{_ASIDE}/{workflow}/{trigger}"
        self._objects.put(name, msgspec.msgpack.encode(time.time()))
        try:
            yield
        finally:
            self._store.delete([name])

    def aside(self) -> set[tuple[str, str]]:
        """(workflow, trigger) of the triggers that services must release now."""
        return {key for info in self._store.list(f"{_ASIDE}/") if (key := self._aside(info.name))}

    def _aside(self, name: str) -> tuple[str, str] | None:
        try:
            since = decoded(float, name, self._objects.get(name))
        except MissingError:
            return None
        workflow, trigger = name.split("/")[2:]
        return (workflow, trigger) if time.time() < since + ASIDE_LASTS else None

    # -- helpers

    def _next(self, candidate: DeploymentCandidate, newest: Deployment | None) -> Deployment:
        return Deployment(
            str(candidate.document["name"]),
            newest.version + 1 if newest else 1,
            time.time(),
            candidate.document,
            candidate.functions,
            candidate.bundle,
            candidate.base,
            candidate.executor,
            nonce=_nonce(),
        )

    def _add(self, made: Deployment) -> bool:
        """Whether this process created the version; also when a broken connection lost the store's answer."""
        if self._objects.create(_version_name(made.workflow, made.version), msgspec.msgpack.encode(made)):
            return True
        return self._version(made.workflow, made.version).nonce == made.nonce

    def _newest(self, workflow: str) -> Deployment | None:
        number = max((version for _, version in self._versions(f"{_WORKFLOWS}/{workflow}")), default=0)
        return self._version(workflow, number) if number else None

    def _version(self, workflow: str, version: int) -> Deployment:
        name = _version_name(workflow, version)
        if name not in self._known:
            try:
                found = decoded(Deployment, name, self._objects.get(name))
            except MissingError:
                text = f"there is no version {version} of the workflow {workflow!r}"
                raise NoSuchDeployment(text, f"See: treadle trigger show {workflow}") from None
            begins = self._begins(workflow, version)
            if begins is None:
                return found
            self._known[name] = replace(found, begins=begins)
        return self._known[name]

    def _begins(self, workflow: str, version: int) -> dict[str, tuple[Position, ...]] | None:
        name = _begins_name(workflow, version)
        try:
            return decoded(dict[str, tuple[Position, ...]], name, self._objects.get(name))
        except MissingError:
            return None

    def _versions(self, folder: str) -> Iterable[tuple[str, int]]:
        for info in self._store.list(f"{folder}/"):
            parts = info.name.split("/")
            if len(parts) == 5 and parts[3] == "versions":
                yield parts[2], int(parts[4])


def parse_name(text: str) -> tuple[str, int | None]:
    """Parse `orders` or `orders@3`. Raises UsageError."""
    workflow, at, version = text.partition("@")
    if at and not (version.isascii() and version.isdigit()):
        raise UsageError(f"{text!r} names no version", f"Write {workflow}@3, or {workflow} for the newest.")
    return workflow, int(version) if at else None


def alike(one: Deployment, other: Deployment) -> bool:
    """Whether both have the same content, so that there is nothing to deploy. Compared as stored, where a tuple is a
    list."""
    return all(
        msgspec.msgpack.encode(getattr(one, field)) == msgspec.msgpack.encode(getattr(other, field)) for field in _SAME
    )


def _nonce() -> str:
    return secrets.token_hex(8)


def _bundle_name(digest: str) -> str:
    return f"{_ROOT}/bundles/{digest}"


def _version_name(workflow: str, version: int) -> str:
    return f"{_WORKFLOWS}/{workflow}/versions/{version}"


def _begins_name(workflow: str, version: int) -> str:
    return f"{_WORKFLOWS}/{workflow}/begins/{version}"


def _pause_name(workflow: str, trigger: str) -> str:
    return f"{_WORKFLOWS}/{workflow}/paused/{trigger}"
