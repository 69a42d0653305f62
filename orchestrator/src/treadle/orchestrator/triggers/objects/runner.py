"""An object trigger in this process: a poller, a hook, or a consumer of notifications, as its newest version says."""

from __future__ import annotations

from treadle.dsl.triggers import ObjectTrigger
from treadle.primitives.errors import InternalError

from ..registry.deployment import Deployment
from ..running import TriggerRunner, TriggerSite, TriggerStatus


class ObjectRunner:
    """TriggerRunner that hands on to the one of its transport, and changes it when another version wants another."""

    def __init__(self, site: TriggerSite, workflow: str, trigger: str) -> None:
        self._site, self._workflow, self._name = site, workflow, trigger
        self._transport = ""
        self._inner: TriggerRunner | None = None
        self._running = False

    async def start(self) -> None:
        """See TriggerRunner."""
        self._running = True
        await self._current.start()

    async def update(self, deployment: Deployment, paused: bool) -> None:
        """See TriggerRunner."""
        wanted = transport_of(deployment, self._name)
        if wanted == self._transport:
            await self._current.update(deployment, paused)
            return
        if self._inner is not None and self._running:
            await self._inner.stop()
        self._inner, self._transport = self._make(wanted), wanted
        await self._inner.update(deployment, paused)
        if self._running:
            await self._inner.start()

    async def stop(self) -> None:
        """See TriggerRunner."""
        self._running = False
        await self._current.stop()

    def status(self) -> TriggerStatus:
        """See TriggerRunner."""
        return self._current.status()

    @property
    def _current(self) -> TriggerRunner:
        if self._inner is None:
            raise InternalError("update comes before everything else")
        return self._inner

    def _make(self, transport: str) -> TriggerRunner:
        if transport == "poll":
            from .poller import Poller

            return Poller(self._site, self._workflow, self._name)
        if transport == "webhook":
            from ..webhook.runner import WebhookRunner

            return WebhookRunner(self._site, self._workflow, self._name)
        from ..kafka.runner import KafkaRunner

        return KafkaRunner(self._site, self._workflow, self._name)


def transport_of(deployment: Deployment, name: str) -> str:
    """`poll`, `webhook` or `kafka`."""
    trigger = deployment.spec.triggers[name]
    assert isinstance(trigger, ObjectTrigger)
    return next(one for one in ("poll", "webhook", "kafka") if getattr(trigger, one) is not None)
