"""Shared memory of runs that are over is given back, as Temporal tells how they ended."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from treadle.primitives.errors import StoreError
from treadle.primitives.run_paths import run_folder
from treadle.primitives.stores.shared_memory import HostFolder

from ..dispatcher.blocks.orphans import remove_strays_of_user

SWEEP_SECONDS = 20.0
_PATIENCE = 3.0
"""Seconds that a driver which ends has for it."""
KEEP_SPARES = 300.0
"""Seconds in which memory of removed blocks is used again or given back."""
KEEP_FAILED = timedelta(hours=24)
"""How long blocks of a run that did not succeed wait for `treadle resume`, and how long after the last of them those of
a run that this Temporal does not know: it may be one of another cluster, which a driver of the same home serves."""
_log = logging.getLogger(__name__)


async def sweep(host: HostFolder, client: Client) -> None:
    """Until cancelled: remove the blocks of runs that are over and need them no more; first, those of dead homes."""
    with suppress(OSError):
        await asyncio.to_thread(remove_strays_of_user, host.root.parent)
    while True:
        await _sweep_once(host, client, KEEP_SPARES)
        await asyncio.sleep(SWEEP_SECONDS)


async def sweep_at_end(host: HostFolder, client: Client) -> None:
    """When a driver ends: remove what no run needs, and all memory that was kept for the next blocks."""
    with suppress(TimeoutError):
        await asyncio.wait_for(_sweep_once(host, client, 0), _PATIENCE)
    with suppress(OSError):
        await asyncio.to_thread(host.spares.drop)


async def _sweep_once(host: HostFolder, client: Client, keep_spares: float) -> None:
    try:
        for run in await asyncio.to_thread(host.runs):
            if await _needless(host, client, run):
                await asyncio.to_thread(host.delete_run, run)
        await asyncio.to_thread(host.spares.drop, keep_spares)
    except (RPCError, StoreError, OSError) as error:
        _log.warning("shared memory was not swept: %s", error)


async def _needless(host: HostFolder, client: Client, run: str) -> bool:
    try:
        about = await client.get_workflow_handle(run).describe()
    except RPCError as error:
        if error.status == RPCStatusCode.NOT_FOUND:
            return await asyncio.to_thread(_is_old, host.path(run_folder(run)))
        raise
    if about.status in (WorkflowExecutionStatus.RUNNING, WorkflowExecutionStatus.CONTINUED_AS_NEW):
        return False
    succeeded = about.status is WorkflowExecutionStatus.COMPLETED
    return succeeded or (about.close_time is not None and datetime.now(UTC) - about.close_time > KEEP_FAILED)


def _is_old(folder: Path) -> bool:
    """Nothing was written below it, or removed, for as long as the blocks of a failed run are kept."""
    written = max((os.stat(below).st_mtime for below, _, _ in os.walk(folder)), default=0.0)
    return time.time() - written > KEEP_FAILED.total_seconds()
