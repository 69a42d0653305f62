"""Shared memory of runs that are over is given back, as Temporal tells how they ended."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from treadle.primitives.errors import StoreError
from treadle.primitives.stores.host import HostFolder

from ..dispatcher.blocks.strays import remove_strays

SWEEP_SECONDS = 20.0
KEEP_SPARES = 300.0
"""Seconds in which memory of removed blocks is used again or given back."""
KEEP_FAILED = timedelta(hours=24)
"""How long blocks of a run that did not succeed wait for `treadle resume`."""
_log = logging.getLogger(__name__)


async def sweep(host: HostFolder, client: Client) -> None:
    """Until cancelled: remove the blocks of runs that are over and need them no more; first, those of dead homes."""
    with suppress(OSError):
        await asyncio.to_thread(remove_strays, host.root.parent)
    while True:
        try:
            for run in await asyncio.to_thread(host.runs):
                if await _needless(client, run):
                    await asyncio.to_thread(host.delete_run, run)
            await asyncio.to_thread(host.spares.drop, KEEP_SPARES)
        except (RPCError, StoreError, OSError) as error:
            _log.warning("shared memory was not swept: %s", error)
        await asyncio.sleep(SWEEP_SECONDS)


async def _needless(client: Client, run: str) -> bool:
    try:
        about = await client.get_workflow_handle(run).describe()
    except RPCError as error:
        if error.status == RPCStatusCode.NOT_FOUND:
            return True
        raise
    if about.status in (WorkflowExecutionStatus.RUNNING, WorkflowExecutionStatus.CONTINUED_AS_NEW):
        return False
    succeeded = about.status is WorkflowExecutionStatus.COMPLETED
    return succeeded or (about.close_time is not None and datetime.now(UTC) - about.close_time > KEEP_FAILED)
