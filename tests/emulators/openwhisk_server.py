"""An OpenWhisk for tests: its REST API on loopback. Each container is a process that runs the action's real zip.

The API follows docs/rest_api.md of apache/openwhisk, and the statuses of an invocation Actions.scala (`activate`,
`doInvoke`). Delivery is at most once, except with a fault.
"""

from __future__ import annotations

import asyncio
import base64
import functools
import json
import secrets
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import uvicorn
from emulators.openwhisk_actions import Action, Activation, Given, Minute, Rejected, SystemLimits, put_action
from emulators.openwhisk_container import Container, Reply
from emulators.openwhisk_faults import Fault, Faults, Kind
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from treadle.executors.local.orphan_guard import Guard

KEY = "23bc46b1-71f6-4ed5-8c54-816aa4f8c502:emulated"
"""The key of the namespace `guest`."""
_NAMESPACE = "/api/v1/namespaces/{namespace}"
Handle = Callable[[Request], Awaitable[Response]]


class OpenWhiskEmulator:
    """Serves within its context. Any thread may read attributes, and set faults and limits."""

    def __init__(self, folder: Path, limits: SystemLimits | None = None, certificate: Path | None = None) -> None:
        """`certificate`: PEM file of a key and its certificate, for HTTPS."""
        self.key, self._certificate = KEY, certificate
        self.endpoint = ""
        self.limits = limits or SystemLimits()
        self.faults = Faults()
        self.actions: dict[str, Action] = {}
        self.activations: dict[str, Activation] = {}
        self.refused = 0
        """Calls answered with 429."""
        self.most_at_once = 0
        self._folder = folder
        self._warm: dict[tuple[str, int], list[Container]] = {}
        self._containers: set[Container] = set()
        self._minute = Minute()
        self._under_way = 0
        self._hidden: dict[str, float] = {}
        """Activation -> the time of its record."""
        self._background: set[asyncio.Task[None]] = set()

    # -- from the test's thread

    def __enter__(self) -> Self:
        self._container_guard = Guard()
        listening = socket.socket()
        listening.bind(("127.0.0.1", 0))
        scheme = "https" if self._certificate else "http"
        self.endpoint = f"{scheme}://127.0.0.1:{listening.getsockname()[1]}"
        config = uvicorn.Config(
            self._app(),
            log_level="critical",
            access_log=False,
            lifespan="off",
            ws="none",
            ssl_certfile=self._certificate,
        )
        self._server = uvicorn.Server(config)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, args=(listening,), name="openwhisk")
        self._thread.start()
        while not self._server.started:
            time.sleep(0.005)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.reclaim()
        self._server.should_exit = self._server.force_exit = True
        self._thread.join()
        self._container_guard.close()

    def reclaim(self) -> None:
        """Reclaim every container, busy or warm, as the platform may at any time. Returns when they are gone."""
        self._do(self._reclaim())

    def set_faults(self, *faults: Fault, seed: int = 0) -> None:
        self.faults = Faults(faults, seed)

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    def _serve(self, listening: socket.socket) -> None:
        with listening, asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._server.serve([listening]))

    async def _reclaim(self) -> None:
        while self._containers:
            await asyncio.gather(*(self._destroy(container) for container in list(self._containers)))
        for task in list(self._background):
            with suppress(asyncio.CancelledError):
                await task

    # -- the API

    def _app(self) -> Starlette:
        routes: list[tuple[str, str, Handle]] = [
            ("/actions", "GET", self._list_actions),
            ("/actions/{name}", "GET", self._get_action),
            ("/actions/{name}", "PUT", self._put_action),
            ("/actions/{name}", "DELETE", self._delete_action),
            ("/actions/{name}", "POST", self._invoke),
            ("/activations/{id}", "GET", self._get_activation),
            ("/limits", "GET", self._get_limits),
        ]
        return Starlette(
            routes=[Route(_NAMESPACE + path, self._guard(do), methods=[verb]) for path, verb, do in routes]
        )

    def _guard(self, handle: Handle) -> Handle:
        expected = "Basic " + base64.b64encode(self.key.encode()).decode()

        async def guarded(request: Request) -> Response:
            try:
                if not secrets.compare_digest(request.headers.get("authorization", ""), expected):
                    raise Rejected(401, "The supplied authentication is invalid.")
                if request.path_params["namespace"] not in ("_", "guest"):
                    raise Rejected(403, "The supplied authentication is not authorized to access this resource.")
                return await handle(request)
            except Rejected as rejected:
                self.refused += rejected.status == 429
                return JSONResponse({"error": str(rejected), "code": secrets.token_hex(16)}, rejected.status)

        return guarded

    async def _put_action(self, request: Request) -> Response:
        name, given = request.path_params["name"], json.loads(await request.body())
        overwrite = request.query_params.get("overwrite") == "true"
        action = self.actions[name] = put_action(name, given, self.actions.get(name), overwrite, self.limits)
        await self._drop_warm(name)
        return JSONResponse(_shown(action, with_code=True))

    async def _list_actions(self, request: Request) -> Response:
        """apiv1swagger.json: 30 by default, 200 at most (`limit`)."""
        skip, limit = (int(request.query_params.get(name, known)) for name, known in (("skip", 0), ("limit", 30)))
        if limit > 200:
            raise Rejected(400, f"The value '{limit}' is not in the range of 0 to 200 for actions.")
        page = list(self.actions.values())[skip : skip + (limit or 200)]
        return JSONResponse([_shown(action, with_code=False) for action in page])

    async def _get_action(self, request: Request) -> Response:
        return JSONResponse(_shown(self._named(request), request.query_params.get("code") != "false"))

    async def _delete_action(self, request: Request) -> Response:
        action = self._named(request)
        del self.actions[action.name]
        await self._drop_warm(action.name)
        return JSONResponse(_shown(action, with_code=False))

    async def _get_activation(self, request: Request) -> Response:
        found = self.activations.get(request.path_params["id"])
        if found is None or not found.ended or time.time() < self._hidden.get(found.id, 0):
            raise Rejected(404, "The requested resource does not exist.")
        return JSONResponse(found.record())

    async def _get_limits(self, request: Request) -> Response:
        least, most = self.limits.memory
        return JSONResponse(
            {
                "invocationsPerMinute": self.limits.per_minute,
                "concurrentInvocations": self.limits.concurrent,
                "minActionMemory": least,
                "maxActionMemory": most,
                "minActionTimeout": self.limits.milliseconds[0],
                "maxActionTimeout": self.limits.milliseconds[1],
                "maxParameterSize": self.limits.payload,
            }
        )

    def _named(self, request: Request) -> Action:
        if (action := self.actions.get(request.path_params["name"])) is None:
            raise Rejected(404, "The requested resource does not exist.")
        return action

    async def _invoke(self, request: Request) -> Response:
        action, body = self._named(request), await request.body()
        given, faults = action.given(json.loads(body or b"{}")), self.faults.next_call()
        self._admit(action, body, faults)
        if "lose call" in faults:
            return Cut()
        activation = Activation(action)
        self.activations[activation.id] = activation
        self._under_way += 1
        self.most_at_once = max(self.most_at_once, self._under_way)
        ending = asyncio.create_task(self._activate(activation, given, faults))
        self._background.add(ending)
        ending.add_done_callback(self._background.discard)
        if request.query_params.get("blocking") == "true" and "late record" not in faults:
            await asyncio.wait({ending}, timeout=min(self.limits.blocking_seconds, action.seconds))
        if "lose response" in faults:
            await asyncio.wait({ending})
            return Cut()
        if not ending.done():
            return JSONResponse({"activationId": activation.id}, 202)
        # Logs are collected after the reply, so a blocking reply has none when it is sent before that.
        return JSONResponse(activation.record(with_logs=False), {0: 200, 3: 500}.get(activation.code, 502))

    def _admit(self, action: Action, body: bytes, faults: dict[Kind, Fault]) -> None:
        curried = len(json.dumps(action.bound))
        if len(body) + curried > self.limits.payload:
            raise Rejected(413, f"payload larger than allowed: {len(body) + curried} > {self.limits.payload} bytes.")
        if "unavailable" in faults:
            raise Rejected(503, "There was an error processing your request.")
        if "throttle minute" in faults:
            raise Rejected(429, "Too many requests in the last minute (count: 121, allowed: 120).")
        if "throttle concurrent" in faults:
            raise Rejected(429, "Too many concurrent requests in flight (count: 100, allowed: 100).")
        self._minute.charge(self.limits.per_minute, time.time())
        if self._under_way >= self.limits.concurrent:
            at_once = f"(count: {self._under_way}, allowed: {self.limits.concurrent})."  # ActivationThrottler.scala
            raise Rejected(429, f"Too many concurrent requests in flight {at_once}")

    # -- containers

    async def _activate(self, activation: Activation, given: Given, faults: dict[Kind, Fault]) -> None:
        twin = Activation(activation.action) if "run twice" in faults else None
        try:
            both = [self._run(each, given, faults) for each in (activation, twin) if each is not None]
            await asyncio.gather(*both)
        finally:
            self._under_way -= 1
        if "platform error" in faults:
            activation.end(3, {"error": "There was an error processing your request."})
        if (late := faults.get("late record")) is not None:
            self._hidden[activation.id] = time.time() + late.seconds

    async def _run(self, activation: Activation, given: Given, faults: dict[Kind, Fault]) -> None:
        action = activation.action
        container, is_warm = await self._container(action)
        activation.waited_milliseconds = int((time.time() - activation.begun) * 1000)
        try:
            async with asyncio.timeout(action.seconds):
                if await self._initialised(container, activation, given, is_warm, faults):
                    reply = await self._ran(container, activation, given, faults)
                    activation.interpret(*reply, self.limits.result, initialising=False)
        except TimeoutError:
            limit = int(action.seconds * 1000)
            activation.end(2, {"error": f"The action exceeded its time limits of {limit} milliseconds."})
        if container in self._containers:
            activation.logs = await container.take_log()
        if activation.code == 0 and container in self._containers and "kill after run" not in faults:
            self._warm.setdefault((action.name, action.version), []).append(container)
        else:
            await self._destroy(container)

    async def _container(self, action: Action) -> tuple[Container, bool]:
        warm = self._warm.get((action.name, action.version), [])
        if warm:
            return warm.pop(), True
        folder = self._folder / "containers" / secrets.token_hex(4)
        cache = self._folder / "unpacked"
        cache.mkdir(parents=True, exist_ok=True)
        container = Container(folder, cache, action.memory, self._container_guard)
        self._containers.add(container)
        await container.wait_ready()
        return container, False

    async def _initialised(
        self, container: Container, activation: Activation, given: Given, is_warm: bool, faults: dict[Kind, Fault]
    ) -> bool:
        """False: it failed, and the activation has ended."""
        if "kill before init" in faults:
            await self._destroy(container)
        if is_warm:
            return True
        action, begun = activation.action, time.time()
        reply = await container.post("init", _init_body(action, json.dumps(given.environment)))
        activation.init_milliseconds = max(1, int((time.time() - begun) * 1000))
        if reply.status == 200:
            return True
        activation.interpret(*reply, self.limits.result, initialising=True)
        return False

    async def _ran(
        self, container: Container, activation: Activation, given: Given, faults: dict[Kind, Fault]
    ) -> Reply:
        if "kill before run" in faults:
            await self._destroy(container)
        if (fault := faults.get("kill during run")) is not None:
            self._loop.call_later(fault.seconds, lambda: self._background_task(self._destroy(container)))
        deadline = int((time.time() + activation.action.seconds) * 1000)
        message = {
            "value": given.arguments,
            "namespace": "guest",
            "action_name": f"/guest/{activation.action.name}",
            "activation_id": activation.id,
            "transaction_id": secrets.token_hex(16),
            "deadline": str(deadline),
        }
        return await container.post("run", json.dumps(message).encode())

    def _background_task(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _drop_warm(self, name: str) -> None:
        """End containers of an older version, since they serve no more calls."""
        for key in [key for key in self._warm if key[0] == name]:
            await self._destroy_all(self._warm.pop(key))

    async def _destroy_all(self, containers: Sequence[Container]) -> None:
        await asyncio.gather(*(self._destroy(container) for container in containers))

    async def _destroy(self, container: Container) -> None:
        if container in self._containers:
            self._containers.discard(container)
            for warm in self._warm.values():
                with suppress(ValueError):
                    warm.remove(container)
            await container.kill()


class Cut(Response):
    """The server goes away in the middle of its reply."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"1000")]})
        await send({"type": "http.response.body", "body": b"{", "more_body": True})


@functools.lru_cache(maxsize=8)
def _init_body(action: Action, environment: str) -> bytes:
    """Tens of megabytes, the same for all containers of a version. `environment`: as JSON."""
    execute = action.document["exec"]
    value = {
        "name": action.name,
        "main": execute.get("main", "main"),
        "code": execute.get("code", ""),
        "binary": execute.get("binary", False),
        "env": json.loads(environment) | {"__OW_ACTION_NAME": f"/guest/{action.name}"},
    }
    return json.dumps({"value": value}).encode()


def _shown(action: Action, with_code: bool) -> dict[str, Any]:
    execute = dict(action.document["exec"])
    if not with_code:
        execute.pop("code", None)
    execute.setdefault("binary", True)
    return action.document | {
        "namespace": "guest",
        "name": action.name,
        "version": f"0.0.{action.version}",
        "publish": False,
        "exec": execute,
    }
