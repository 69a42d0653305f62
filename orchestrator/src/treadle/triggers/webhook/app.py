"""The HTTP application of hooks: reads requests and answers them. Errors are problem details (RFC 9457).

202: the run exists, durably. 200: it existed already, under the same id, or all events of the request are filtered out.
503 asks the sender to retry: `maxActive` runs are open, the trigger is paused, or Temporal does not answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any, Protocol

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from treadle.orchestrator.environment.connection_errors import Unreachable
from treadle.orchestrator.run_store.uri_policy import Forbidden
from treadle.primitives.errors import TreadleError, UsageError
from treadle.primitives.log_rate_limit import limited_logger

from ..run_limit import Full, RunLimit
from ..start_requests import RunStarted, Starter, StartOrder
from .requests import Hook, RequestProblem

_log = limited_logger("treadle.triggers.webhook")
READ_TIMEOUT = 20.0
"""Seconds that a sender has for its body. Some time later the server closes its connection, without an answer."""
FULL_AGAIN, AWAY_AGAIN, PAUSED_AGAIN = 10, 5, 60
"""Seconds after which a sender should retry."""


class Served(Protocol):
    """A hook for its requests."""

    hook: Hook
    starter: Starter
    gate: RunLimit
    paused: bool

    async def read(self, headers: Mapping[str, str], body: bytes) -> list[StartOrder]:
        """The runs for a request. Raises RequestProblem; UsageError when the hook's secret is missing."""

    def count(self, started: RunStarted) -> None:
        """Count a start that a request caused."""

    def refused(self, problem: RequestProblem) -> None:
        """Count a problem that the sender must fix."""


def make_app(hooks: Callable[[str, str], Served | None]) -> Starlette:
    """`hooks`: returns the hook of a workflow and trigger, or None."""

    async def call(request: Request) -> Response:
        served = hooks(request.path_params["workflow"], request.path_params["trigger"])
        if served is None:
            raise RequestProblem(404, "no such hook is deployed", "Deploy a workflow with a trigger of type webhook.")
        try:
            return await _call(served, request)
        except RequestProblem as problem:
            served.refused(problem)
            raise

    async def health(_: Request) -> Response:
        return _json(200, {"status": "ok"})

    handlers: dict[Any, Callable[[Request, Exception], Awaitable[Response]]] = {
        RequestProblem: _problem,
        HTTPException: _http,
        Exception: _defect,
    }
    routes = [
        Route("/hooks/{workflow}/{trigger}", call, methods=["POST"]),
        Route("/healthz", health, methods=["GET"]),
    ]
    return Starlette(routes=routes, exception_handlers=handlers)


async def _call(served: Served, request: Request) -> Response:
    if served.paused:
        raise RequestProblem(503, "the trigger is paused", retry_after=PAUSED_AGAIN)
    body = await _body(request, served.hook.max_body)
    try:
        orders = await served.read(dict(request.headers), body)
    except UsageError as error:
        _log.warning("hook %s/%s: %s", served.hook.workflow, served.hook.name, error.message)
        raise RequestProblem(
            503, "the hook is not ready: its secret is missing or malformed", retry_after=PAUSED_AGAIN
        ) from None
    outcomes = [await _start(served, order) for order in orders]
    if refused := [one for one in outcomes if isinstance(one, RequestProblem)]:
        raise refused[0]
    runs = [one for one in outcomes if isinstance(one, RunStarted)]
    status = 202 if any(one.new for one in runs) else 200
    return _json(status, {"runs": [{"run": one.run, "new": one.new} for one in runs]})


async def _start(served: Served, order: StartOrder) -> RunStarted | RequestProblem:
    """A returned RequestProblem concerns this run alone; a raised one concerns the request."""
    try:
        async with served.gate.entering() as enter:
            started = await served.starter.start(order)
            enter(started)
    except Full:
        raise RequestProblem(503, "as many runs are open as the trigger may have", retry_after=FULL_AGAIN) from None
    except Unreachable as error:
        _log.warning("hook %s/%s: %s", order.workflow, order.trigger, error)
        raise RequestProblem(503, "no run can be started now", retry_after=AWAY_AGAIN) from None
    except Forbidden as error:
        return RequestProblem(403, error.message, error.hint)
    except UsageError as error:
        return RequestProblem(422, error.message, error.hint)
    served.count(started)
    return started


async def _body(request: Request, most: int) -> bytes:
    """Read at most `most` bytes. A body with a longer content-length is not read; other bodies are read up to the
    limit."""
    too_long = RequestProblem(413, f"the body has more than {most} bytes")
    length = request.headers.get("content-length", "")
    if length.isdigit() and int(length) > most:
        raise too_long
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(READ_TIMEOUT):
            async for part in request.stream():
                size += len(part)
                if size > most:
                    raise too_long
                parts.append(part)
    except TimeoutError:
        raise RequestProblem(408, "the body did not come in time") from None
    except ClientDisconnect:
        raise RequestProblem(400, "the sender went away") from None
    return b"".join(parts)


async def _problem(_: Request, problem: Exception) -> Response:
    assert isinstance(problem, RequestProblem)
    headers = {} if problem.retry_after is None else {"retry-after": str(problem.retry_after)}
    if problem.status == 401:
        headers["www-authenticate"] = "Signature"
    if problem.status in (408, 413):
        headers["connection"] = "close"  # does not wait for the rest of the body
    return _details(problem.status, problem.message, problem.hint, headers)


async def _http(_: Request, error: Exception) -> Response:
    """Errors of the router: 404 and 405."""
    assert isinstance(error, HTTPException)
    return _details(error.status_code, error.detail, "", dict(error.headers or {}))


async def _defect(_: Request, error: Exception) -> Response:
    text = error.message if isinstance(error, TreadleError) else "a defect; the log of the service has the traceback"
    return _details(500, text, "", {})


def _details(status: int, detail: str, hint: str, headers: dict[str, str]) -> Response:
    found = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status, "detail": detail}
    return _json(status, found | ({"hint": hint} if hint else {}), "application/problem+json", headers)


def _json(
    status: int, value: Any, media_type: str = "application/json", headers: dict[str, str] | None = None
) -> Response:
    return Response(msgspec.json.encode(value), status, headers, media_type)
