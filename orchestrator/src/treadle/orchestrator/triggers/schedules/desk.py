"""The activity of a tick: from a nominal time to a run that is ready to start."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime

from temporalio import activity
from temporalio.exceptions import ApplicationError

from treadle.primitives import trust
from treadle.primitives.errors import CorruptError, FailureClass, StoreError, UsageError
from treadle.primitives.store import Store

from ...runfiles import RunFiles, Submission
from ...temporal.activities import digest
from ...temporal.messages import RunStart
from ..allowed import check_allowed
from ..identity import label
from ..registry.deployment import Deployment
from ..registry.registry import NoSuchDeployment, Registry
from .flow import BEGIN_TICK, Begun, Tick
from .ticks import order_for

TRIGGER_ATTRIBUTE = "TreadleTrigger"


class TickDesk:
    """Bound to what the driver process has: the store with its registry, and what triggered runs may touch."""

    def __init__(self, store: Store, key: bytes, allow: Sequence[str] | None) -> None:
        self._store, self._key, self._allow = store, key, allow
        self._registry = Registry(store, key)

    @activity.defn(name=BEGIN_TICK)
    async def begin(self, tick: Tick, nominal: str) -> Begun:
        """Write down what the run is made of. An unreachable store is tried again; a mapping or input that does not
        fit fails the tick, which is where Temporal shows it."""
        try:
            return await asyncio.to_thread(self._begin, tick, datetime.fromisoformat(nominal))
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
        submission = deployment.submission(order.run, order.inputs)
        check_allowed(self._allow, submission)
        kept = self._keep(deployment, submission)
        memo = {"workflow": order.workflow, "resumption": 1, "version": order.version}
        keywords = {TRIGGER_ATTRIBUTE: label(order.workflow, order.trigger)}
        return Begun(RunStart(order.run, digest(kept)), memo, keywords)

    def _keep(self, deployment: Deployment, submission: Submission) -> Submission:
        """The submission that counts: the first one written under this id."""
        files = RunFiles(self._store, submission.run, trust.run_key(self._key, submission.run))
        if submission.bundle:
            files.create_bytes("bundle", self._registry.bundle(deployment))
        return submission if files.create("spec", submission) else files.load(Submission, "spec")
