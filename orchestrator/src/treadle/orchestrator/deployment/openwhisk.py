"""Actions on Apache OpenWhisk, read and changed by its REST API (rest_api.md of apache/openwhisk)."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping
from typing import Any

from treadle.executors.openwhisk.action import PACKAGE, SETTINGS, action_document, code_of, image_of
from treadle.executors.openwhisk.answers import refuse
from treadle.executors.openwhisk.client import Client, Reply
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
        return await self._made(False, prune=False)

    async def apply(self, prune: bool) -> list[Change]:
        """Make it so. `prune`: remove sizes that are not wanted any more."""
        return await self._made(True, prune)

    async def _made(self, put: bool, prune: bool) -> list[Change]:
        done: list[Change] = []
        wanted = self._wanted()
        for name, document in wanted.items():
            change = compare(f"action {name}", _compared(document), await self._found(name))
            if put and change.did != "unchanged":
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
        params = {"code": "false"}
        reply = await self._ask(f"reading action {name}", "GET", f"actions/{name}", fine=(200, 404), params=params)
        return _compared(json.loads(reply.body)) if reply.status == 200 else None

    async def _put(self, name: str, document: Mapping[str, Any]) -> None:
        params = {"overwrite": "true"}
        await self._ask(f"making action {name}", "PUT", f"actions/{name}", params=params, json=document)

    async def _surplus(self, wanted: Mapping[str, Any]) -> list[str]:
        known: list[str] = []
        while True:
            page = {"limit": str(_PAGE), "skip": str(len(known))}
            reply = await self._ask("listing actions", "GET", "actions", params=page)
            names = [action["name"] for action in json.loads(reply.body)]
            known += names
            if len(names) < _PAGE:
                return surplus(self._request.prefix, known, wanted)

    async def _remove(self, name: str, prune: bool) -> Change:
        if not prune:
            return Change(f"action {name}", "left")
        await self._ask(f"removing action {name}", "DELETE", f"actions/{name}", fine=(200, 404))
        return Change(f"action {name}", "removed")

    async def _ask(self, what: str, method: str, path: str, *, fine: tuple[int, ...] = (200,), **options: Any) -> Reply:
        """`fine`: statuses that are answers. Raises UsageError and StoreError for others."""
        reply = await self._client.request(method, path, **options)
        if reply.status not in fine:
            refuse(reply.status, reply.body, what)
        return reply


def _compared(document: Mapping[str, Any]) -> dict[str, Any]:
    """What tells two actions apart. Parameters may come back encrypted: of them the digest counts."""
    notes = {each["key"]: each.get("value") for each in document.get("annotations", [])}
    limits = document.get("limits", {})
    return {
        "code": notes.get(PACKAGE),
        "variables' digest": notes.get(SETTINGS),
        "final": notes.get("final"),
        "kind": document.get("exec", {}).get("kind"),
        **{name: limits.get(name) for name in ("timeout", "memory", "logs", "concurrency")},
    }


def _settings_digest(key: bytes, variables: Mapping[str, str]) -> str:
    """Under the key: an annotation is public, and a secret might be guessed from a plain digest."""
    return hmac.new(key, json.dumps(dict(variables), sort_keys=True).encode(), hashlib.sha256).hexdigest()[:32]
