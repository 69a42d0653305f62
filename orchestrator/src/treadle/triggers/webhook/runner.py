"""One hook in this process, for the server and for the trigger service."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from treadle.dsl.evaluation import EvaluatorLost
from treadle.primitives.errors import UsageError
from treadle.primitives.log_rate_limit import limited_logger

from ..registry.deployment import Deployment
from ..run_limit import RunLimit
from ..start_requests import RunStarted, StartOrder
from ..trigger_runner import State, TriggerSite, TriggerStatus
from .requests import Hook, RequestProblem, check_secret, read

_log = limited_logger("treadle.triggers.webhook")
UNREAD = 64
"""Requests of one hook that may wait for their check; further ones must be retried by the sender."""
UNREAD_AGAIN = 10
"""Seconds after which the sender should retry."""
_EXTRA = "pip install 'treadle-orchestrator[triggers]'"


class WebhookRunner:
    """See TriggerRunner."""

    def __init__(self, site: TriggerSite, workflow: str, trigger: str) -> None:
        try:
            from .server import HookServer
        except ModuleNotFoundError as error:
            raise UsageError(f"webhooks need {error.name}", _EXTRA) from error
        self._site, self._workflow, self._name = site, workflow, trigger
        self.server = HookServer.at(site.profile.webhook.address)
        self.starter = site.starter
        self.gate = RunLimit(site.starter, workflow, trigger)
        self.hook: Hook
        self._deployment: Deployment | None = None
        self.paused = False
        self._serving = False
        self._reader = ThreadPoolExecutor(1, f"hook {trigger}")
        self.unread = 0
        self._started = self._refused = 0
        self._error = ""

    # -- TriggerRunner

    async def start(self) -> None:
        await self.server.add(self._workflow, self._name, self)
        self._serving = True

    async def update(self, deployment: Deployment, paused: bool) -> None:
        if deployment is not self._deployment:
            self._deployment, self.hook = deployment, Hook(deployment, self._name)
        self.gate.limit, self.paused = self.hook.trigger.max_active, paused
        try:
            check_secret(self.hook, self.secret())
            self._error = ""
        except UsageError as error:
            self._error = str(error)

    async def stop(self) -> None:
        self._serving = False
        await self.server.remove(self._workflow, self._name)
        self._reader.shutdown(wait=False)
        await self.gate.close()

    def status(self) -> TriggerStatus:
        kind = self.hook.trigger.type
        where = (self._workflow, self._name, kind, self.hook.version, self._state())
        return TriggerStatus(*where, self._started, self._refused, self.gate.active, None, self._error, time.time())

    def _state(self) -> State:
        if not self._serving:
            return "stopped"
        return "paused" if self.paused else "failed" if self._error else "running"

    # -- for the server

    async def read(self, headers: Mapping[str, str], body: bytes) -> list[StartOrder]:
        """The runs for a request. Checked outside the event loop, one request at a time: a hook with a slow schema
        delays only its own requests. Raises RequestProblem; UsageError when the hook's secret is missing."""
        if self.unread >= UNREAD:
            raise RequestProblem(503, "too many requests of this hook wait to be checked", retry_after=UNREAD_AGAIN)
        self.unread += 1
        try:
            work = partial(read, self.hook, headers, body, self.secret(), time.time())
            return await asyncio.get_running_loop().run_in_executor(self._reader, work)
        except EvaluatorLost as error:
            _log.warning("hook %s/%s: %s", self._workflow, self._name, error)
            raise RequestProblem(503, "the request cannot be checked now", retry_after=UNREAD_AGAIN) from None
        finally:
            self.unread -= 1

    def secret(self) -> str | None:
        """The text of the hook's secret; None: the hook has no secret. Raises UsageError when it is missing."""
        return None if self.hook.secret is None else self._site.home.secret(self.hook.secret)

    def count(self, started: RunStarted) -> None:
        """Count a start that a request caused."""
        self._started += started.new

    def refused(self, problem: RequestProblem) -> None:
        """Count a problem that the sender must fix, as the dead letter of a hook. The sender learns of it from the
        answer."""
        self._refused += problem.status in (400, 403, 413, 415, 422)
