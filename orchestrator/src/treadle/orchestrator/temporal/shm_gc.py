"""Frees the shared memory of finished runs. Temporal's record of a run decides when."""

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
"""Seconds for the sweep at a driver's end."""
KEEP_SPARES = 300.0
"""Seconds for which memory of removed blocks is kept for reuse."""
KEEP_FAILED = timedelta(hours=24)
"""How long the blocks of an unsuccessful run are kept for `treadle resume`. The blocks of a run that this Temporal does
not know are kept as long after their last change: a driver of the same home may serve it on another cluster."""
_log = logging.getLogger(__name__)


async def sweep(host: HostFolder, client: Client) -> None:
    """Remove the blocks of finished runs, until cancelled. Blocks of homes that no longer exist go first."""
    with suppress(OSError):
        await asyncio.to_thread(remove_strays_of_user, host.root.parent)
    while True:
        await _sweep_once(host, client, KEEP_SPARES)
        await asyncio.sleep(SWEEP_SECONDS)


async def sweep_at_end(host: HostFolder, client: Client) -> None:
    """At the end of a driver, remove the blocks that no run needs, and all memory kept for reuse."""
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
    """Returns whether nothing below the folder was written or removed for as long as the blocks of a failed run are
    kept."""
    written = max((os.stat(below).st_mtime for below, _, _ in os.walk(folder)), default=0.0)
    return time.time() - written > KEEP_FAILED.total_seconds()
