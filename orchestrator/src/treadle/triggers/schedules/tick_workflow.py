"""One tick: a small fixed workflow that a Temporal Schedule starts, because the run's inputs depend on the time.

A Schedule's action has fixed arguments, and a run needs its spec in the store first. So the tick calls an activity for
both and then starts the run as its **child**, under the id of the nominal time. A child is necessary, instead of an
activity that waits. The overlap policies of a Schedule apply to the workflow that it started, so that workflow must
last as long as the run, and their effects must reach the run. `cancelOther` cancels the tick, which passes the
cancellation on and waits. `terminateOther` terminates it, and the server then terminates the child, even without a
living driver.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import (
    RetryPolicy,
    SearchAttributeKey,
    SearchAttributePair,
    TypedSearchAttributes,
    WorkflowIDReusePolicy,
)
from temporalio.exceptions import (
    ActivityError,
    ApplicationError,
    ChildWorkflowError,
    WorkflowAlreadyStartedError,
    is_cancelled_exception,
)

with workflow.unsafe.imports_passed_through():
    from msgspec import Struct

    from treadle.orchestrator.protocol import messages
    from treadle.orchestrator.protocol.messages import RunStart

TICK = "treadle.tick"
BEGIN_TICK = "treadle.tick.begin"
NOMINAL = SearchAttributeKey.for_datetime("TemporalScheduledStartTime")
"""Set by the server on workflows that a Schedule starts: the time without jitter, also for a backfill."""
_TRIGGER = SearchAttributeKey.for_keyword(messages.TRIGGER)
_RETRY = RetryPolicy(initial_interval=timedelta(seconds=1), maximum_interval=timedelta(seconds=30))
"""Forever: a store that does not answer delays a tick and never loses it."""


class Tick(Struct, frozen=True):
    """Input of the workflow, and the argument of all our Schedules."""

    workflow: str
    trigger: str
    owner: str = ""
    """The owner of the Schedule: a digest of the deployment key, because several deployments may share a namespace."""
    asked: str = ""
    """Digest of the Schedule's settings, to detect a change."""


class Begun(Struct, frozen=True):
    """The run of a tick, ready to start; without `start`, there is nothing to do."""

    start: RunStart | None = None
    memo: dict[str, Any] = {}
    reason: str = ""


@workflow.defn(name=TICK)
class TickWorkflow:
    """Starts the run of one nominal time, and lasts until its end."""

    @workflow.run
    async def run(self, tick: Tick) -> dict[str, Any]:
        begun = await self._begin(tick)
        if begun.start is None:
            return {"run": None, "reason": begun.reason}
        run = begun.start.run
        try:
            child = await workflow.start_child_workflow(
                messages.WORKFLOW,
                begun.start,
                id=run,
                id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
                memo=begun.memo,
                search_attributes=TypedSearchAttributes([SearchAttributePair(_TRIGGER, begun.memo["trigger"])]),
                static_summary=tick.workflow,
            )
        except WorkflowAlreadyStartedError:
            return {"run": run, "new": False}
        try:
            await child
        except ChildWorkflowError as error:
            if is_cancelled_exception(error):
                raise
            return {"run": run, "new": True, "succeeded": False}
        return {"run": run, "new": True, "succeeded": True}

    async def _begin(self, tick: Tick) -> Begun:
        try:
            begun: Begun = await workflow.execute_activity(
                BEGIN_TICK,
                args=[tick, nominal_time().isoformat()],
                result_type=Begun,
                start_to_close_timeout=timedelta(minutes=2),
                retry_policy=_RETRY,
            )
        except ActivityError as error:
            if isinstance(error.cause, ApplicationError):
                raise ApplicationError(error.cause.message, type=error.cause.type, non_retryable=True) from error
            raise
        return begun


def nominal_time() -> datetime:
    """The nominal time of this tick."""
    found = workflow.info().typed_search_attributes.get(NOMINAL)
    return found or workflow.info().start_time.replace(microsecond=0)
