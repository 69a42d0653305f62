"""The activity of a tick: from a nominal time to a run that is ready to start."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime

from temporalio import activity
from temporalio.client import Client
from temporalio.exceptions import ApplicationError

from treadle.client.client import keep, memo
from treadle.orchestrator.environment.connection_errors import Unreachable
from treadle.orchestrator.protocol.messages import RunStart
from treadle.orchestrator.run_store.run_files import RunFiles, digest
from treadle.primitives import sealing
from treadle.primitives.errors import CorruptError, FailureClass, StoreError, UsageError
from treadle.primitives.stores.store import Store

from ..registry.registry import NoSuchDeployment, Registry
from ..starter import ensure_search_attribute, prepared
from .tick_runs import order_for
from .tick_workflow import BEGIN_TICK, Begun, Tick


class TickDesk:
    """Holds the driver's resources: the store with its registry, and the URIs that triggered runs may access."""

    def __init__(self, client: Client, store: Store, key: bytes, allow: Sequence[str] | None) -> None:
        self._client, self._store, self._key, self._allow = client, store, key, allow
        self._registry = Registry(store, key)
        self._can_be_found = False

    @activity.defn(name=BEGIN_TICK)
    async def begin(self, tick: Tick, nominal: str) -> Begun:
        """Write the run's submission. Errors of the store or server are retried. An invalid mapping or input fails the
        tick, which Temporal displays."""
        try:
            if not self._can_be_found:
                await ensure_search_attribute(self._client)  # otherwise the server rejects runs that have it
                self._can_be_found = True
            return await asyncio.to_thread(self._begin, tick, datetime.fromisoformat(nominal))
        except Unreachable as error:
            raise ApplicationError(str(error), type=str(FailureClass.UNREACHABLE)) from error
        except StoreError as error:
            kind = str(FailureClass.UNREACHABLE)
            raise ApplicationError(str(error), type=kind, non_retryable=not error.retryable) from error
        except UsageError as error:
            raise ApplicationError(str(error), type="refused", non_retryable=True) from error
        except CorruptError as error:
            raise ApplicationError(str(error), type=str(FailureClass.CORRUPT), non_retryable=True) from error

    def _begin(self, tick: Tick, nominal: datetime) -> Begun:
        try:
            deployment = self._registry.deployment(tick.workflow)
        except NoSuchDeployment as gone:
            return Begun(reason=gone.message)
        if tick.trigger not in deployment.spec.triggers:
            return Begun(reason=f"{deployment.name} has no trigger {tick.trigger}")
        order = order_for(deployment, tick.trigger, nominal)
        files = RunFiles(self._store, order.run, sealing.run_key(self._key, order.run))
        kept = keep(files, prepared(self._registry, order, self._allow))
        return Begun(RunStart(kept.run, digest(kept)), memo(kept))
