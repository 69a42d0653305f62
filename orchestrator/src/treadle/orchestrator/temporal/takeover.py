"""A new embedded driver reports its predecessor's death to the server, which would otherwise wait for heartbeats.

An environment has one driver at a time in a home (`embedded.driver_lease`). So when a new one starts, the attempts of
earlier ones are lost beyond doubt. Drivers of a cluster do not know this of each other: a dead one is found by its
missing heartbeat.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta

from temporalio.api.enums.v1 import PendingActivityState
from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.client import Client, WorkflowExecution
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from treadle.primitives.errors import FailureClass

from ..protocol.encryption import activity_context

_PATIENCE = 3.0
"""Seconds. Beyond the heartbeat timeout the call has no use."""
_AT_ONCE = timedelta(milliseconds=1)
"""Zero would mean the interval of the retry policy."""
_BEGUN = (
    PendingActivityState.PENDING_ACTIVITY_STATE_STARTED,
    PendingActivityState.PENDING_ACTIVITY_STATE_CANCEL_REQUESTED,
)
_log = logging.getLogger(__name__)


async def bury(client: Client, identity: str) -> None:
    """End the activity attempts of earlier drivers with this worker identity.

    Call it before an embedded driver polls for work.

    The next attempts can start at once. Attempts that the server does not end in time are left to the heartbeat.
    """
    try:
        await asyncio.wait_for(_bury_all(client, identity), _PATIENCE)
    except (RPCError, TimeoutError) as error:
        _log.warning("attempts of a dead driver wait for their heartbeat: %s", error)


async def _bury_all(client: Client, identity: str) -> None:
    async for run in client.list_workflows("ExecutionStatus = 'Running'"):
        try:
            await _bury_of(client, run, identity)
        except RPCError as error:
            if error.status != RPCStatusCode.NOT_FOUND:  # the run has ended in the meantime
                raise


async def _bury_of(client: Client, run: WorkflowExecution, identity: str) -> None:
    about = await client.get_workflow_handle(run.id, run_id=run.run_id).describe()
    for attempt in about.raw_description.pending_activities:
        if attempt.state in _BEGUN and attempt.last_worker_identity == identity:
            await _end(client, run, attempt)


async def _end(client: Client, run: WorkflowExecution, attempt: PendingActivityInfo) -> None:
    context = activity_context(run, attempt)
    handle = client.get_async_activity_handle(
        workflow_id=run.id, run_id=run.run_id, activity_id=attempt.activity_id
    ).with_context(context)
    if attempt.state == PendingActivityState.PENDING_ACTIVITY_STATE_CANCEL_REQUESTED:
        await handle.report_cancellation()
    else:
        kind = str(FailureClass.WORKER_LOST)
        await handle.fail(ApplicationError("its driver is dead", type=kind, next_retry_delay=_AT_ONCE))
