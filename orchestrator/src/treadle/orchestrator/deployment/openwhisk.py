"""Actions on Apache OpenWhisk, read and changed by its REST API (rest_api.md of apache/openwhisk)."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping
from typing import Any

from treadle.executors.openwhisk.action import PACKAGE, SETTINGS, action_document, code_of, image_of
from treadle.executors.openwhisk.answers import refuse
from treadle.executors.openwhisk.client import Client
from treadle.executors.openwhisk.invoker import action_name
from treadle.executors.package.build import OPENWHISK

from .request import Request
from .wanted import Change, compare, surplus

_PAGE = 200
"""Actions in one listing: the most there is (apiv1swagger.json of apache/openwhisk, `limit`)."""


class OpenWhiskDeployment:
    """One profile's actions. The client is entered by whoever made it."""

    def __init__(self, client: Client, request: Request, key: bytes) -> None:
        """`key`: the deployment key, under which settings are digested. Raises UsageError for too large a package."""
        self._client, self._request, self._key = client, request, key
        if request.package is not None:
            request.package.check(OPENWHISK)
            self._execute = code_of(request.package)
        else:
            self._execute = image_of(request.image)

    async def plan(self) -> list[Change]:
        """What `apply` would do; changes nothing. May raise UsageError and StoreError."""
        wanted = self._wanted()
        changes = [compare(f"action {name}", _compared(wanted[name]), await self._found(name)) for name in wanted]
        return [*changes, *(Change(f"action {name}", "left") for name in await self._surplus(wanted))]

    async def apply(self, prune: bool) -> list[Change]:
        """Make it so. `prune`: remove sizes that are not wanted any more."""
        done: list[Change] = []
        wanted = self._wanted()
        for name, document in wanted.items():
            change = compare(f"action {name}", _compared(document), await self._found(name))
            if change.did != "unchanged":
                await self._put(name, document)
            done.append(change)
        return [*done, *[await self._remove(name, prune) for name in await self._surplus(wanted)]]

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
            )
            for size in request.sizes
        }

    async def _found(self, name: str) -> dict[str, Any] | None:
        reply = await self._client.request("GET", f"actions/{name}", params={"code": "false"})
        if reply.status == 404:
            return None
        if reply.status != 200:
            refuse(reply.status, reply.body, f"reading action {name}")
        return _compared(json.loads(reply.body))

    async def _put(self, name: str, document: Mapping[str, Any]) -> None:
        reply = await self._client.request("PUT", f"actions/{name}", params={"overwrite": "true"}, json=document)
        if reply.status != 200:
            refuse(reply.status, reply.body, f"making action {name}")

    async def _surplus(self, wanted: Mapping[str, Any]) -> list[str]:
        known: list[str] = []
        while True:
            page = {"limit": str(_PAGE), "skip": str(len(known))}
            reply = await self._client.request("GET", "actions", params=page)
            if reply.status != 200:
                refuse(reply.status, reply.body, "listing actions")
            names = [action["name"] for action in json.loads(reply.body)]
            known += names
            if len(names) < _PAGE:
                return surplus(self._request.prefix, known, wanted)

    async def _remove(self, name: str, prune: bool) -> Change:
        if not prune:
            return Change(f"action {name}", "left")
        reply = await self._client.request("DELETE", f"actions/{name}")
        if reply.status not in (200, 404):
            refuse(reply.status, reply.body, f"removing action {name}")
        return Change(f"action {name}", "removed")


def _compared(document: Mapping[str, Any]) -> dict[str, Any]:
    """What tells two actions apart. Parameters may come back encrypted: of them the digest counts."""
    notes = {each["key"]: each.get("value") for each in document.get("annotations", [])}
    limits = document.get("limits", {})
    return {
        "code": notes.get(PACKAGE),
        "variables' digest": notes.get(SETTINGS),
        "kind": document.get("exec", {}).get("kind"),
        **{name: limits.get(name) for name in ("timeout", "memory", "logs", "concurrency")},
    }


def _settings_digest(key: bytes, variables: Mapping[str, str]) -> str:
    """Under the key: an annotation is public, and a secret might be guessed from a plain digest."""
    return hmac.new(key, json.dumps(dict(variables), sort_keys=True).encode(), hashlib.sha256).hexdigest()[:32]
