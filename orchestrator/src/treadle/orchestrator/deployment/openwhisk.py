"""Actions on Apache OpenWhisk, read and changed by its REST API (rest_api.md of apache/openwhisk)."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterable, Mapping
from typing import Any

from treadle.executors.openwhisk.action import PACKAGE, SETTINGS, action_document, code_of, image_of
from treadle.executors.openwhisk.client import OpenWhiskClient, Reply
from treadle.executors.openwhisk.invoker import action_name
from treadle.executors.openwhisk.responses import refuse
from treadle.executors.package.build import OPENWHISK

from .desired_state import Change, compare, surplus
from .owner import OWNER
from .request import DeployRequest

_PAGE = 200
"""Actions in one listing: the maximum (apiv1swagger.json of apache/openwhisk, `limit`)."""


class OpenWhiskDeployment:
    """The actions of one profile. The caller enters the client."""

    def __init__(self, client: OpenWhiskClient, request: DeployRequest, key: bytes, *, adopt: bool = False) -> None:
        """`key`: the deployment key, which keys the digest of the settings. `adopt`: take over another profile's
        actions.

        Raises UsageError for a package that is too large.
        """
        self._client, self._request, self._key, self._adopt = client, request, key, adopt
        if request.package is not None:
            request.package.check(OPENWHISK)
            self._execute = code_of(request.package)
        else:
            self._execute = image_of(request.image)

    async def plan(self) -> list[Change]:
        """The changes that `apply` would make; changes nothing. Raises UsageError and StoreError."""
        wanted = self._wanted()
        found = {name: await self._found(name) for name in wanted}
        changes = [compare(f"action {name}", _compared(wanted[name]), found[name]) for name in wanted]
        return [*changes, *(Change(f"action {name}", "left") for name in await self._surplus(wanted))]

    async def apply(self, prune: bool) -> list[Change]:
        """Make the changes. `prune`: remove surplus sizes."""
        planned = await self.plan()  # refuses actions of other owners before any change
        for change, (name, document) in zip(planned, self._wanted().items(), strict=False):
            if change.did != "unchanged":
                await self._put(name, document)
        return [await self._removed(change) if prune and change.did == "left" else change for change in planned]

    async def remove(self, dry_run: bool) -> list[Change]:
        """Remove this profile's actions of every size."""
        changes = [Change(f"action {name}", "removed") for name in await self._surplus(())]
        return changes if dry_run else [await self._removed(change) for change in changes]

    def _wanted(self) -> dict[str, dict[str, Any]]:
        request = self._request
        settings = _settings_digest(self._key, request.variables)
        return {
            action_name(request.prefix, size): action_document(
                self._execute,
                request.digest,
                settings,
                size=size,
                seconds=request.seconds,
                environment=request.variables,
                tags=request.owner.tags,
            )
            for size in request.sizes
        }

    async def _found(self, name: str) -> dict[str, Any] | None:
        params = {"code": "false"}
        reply = await self._ask(f"reading action {name}", "GET", f"actions/{name}", fine=(200, 404), params=params)
        if reply.status == 404:
            return None
        document = json.loads(reply.body)
        if not self._adopt:
            self._request.owner.check(f"action {name}", _notes(document), "action")
        return _compared(document)

    async def _put(self, name: str, document: Mapping[str, Any]) -> None:
        params = {"overwrite": "true"}
        await self._ask(f"making action {name}", "PUT", f"actions/{name}", params=params, json=document)

    async def _surplus(self, wanted: Iterable[str]) -> list[str]:
        """Names of this profile's actions that are not wanted."""
        known: list[tuple[str, bool]] = []
        while True:
            page = {"limit": str(_PAGE), "skip": str(len(known))}
            reply = await self._ask("listing actions", "GET", "actions", params=page)
            actions = json.loads(reply.body)
            known += [(action["name"], self._request.owner.has(_notes(action))) for action in actions]
            if len(actions) < _PAGE:
                return surplus(self._request.prefix, (name for name, own in known if own), wanted)

    async def _removed(self, change: Change) -> Change:
        name = change.resource.removeprefix("action ")
        await self._ask(f"removing action {name}", "DELETE", f"actions/{name}", fine=(200, 404))
        return Change(change.resource, "removed")

    async def _ask(self, what: str, method: str, path: str, *, fine: tuple[int, ...] = (200,), **options: Any) -> Reply:
        """`fine`: statuses that are answers. Raises UsageError or StoreError for other statuses."""
        reply = await self._client.request(method, path, **options)
        if reply.status not in fine:
            refuse(reply.status, reply.body, what)
        return reply


def _compared(document: Mapping[str, Any]) -> dict[str, Any]:
    """The parts of an action that are compared. Parameters may come back encrypted, so their digest is compared."""
    notes = _notes(document)
    limits = document.get("limits", {})
    return {
        "code": notes.get(PACKAGE),
        "variables' digest": notes.get(SETTINGS),
        "final": notes.get("final"),
        "owner": notes.get(OWNER),
        "kind": document.get("exec", {}).get("kind"),
        **{name: limits.get(name) for name in ("timeout", "memory", "logs", "concurrency")},
    }


def _notes(document: Mapping[str, Any]) -> dict[str, Any]:
    """The annotations of an action. A listing has them too (apiv1swagger.json of apache/openwhisk, EntityBrief)."""
    return {each["key"]: each.get("value") for each in document.get("annotations", [])}


def _settings_digest(key: bytes, variables: Mapping[str, str]) -> str:
    """The digest is keyed, since annotations are public and a secret might be guessed from a plain digest."""
    return hmac.new(key, json.dumps(dict(variables), sort_keys=True).encode(), hashlib.sha256).hexdigest()[:32]
