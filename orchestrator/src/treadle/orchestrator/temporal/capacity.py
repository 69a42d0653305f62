"""The number of task groups that the drivers of a queue can take at once.

A driver takes a few groups at a time, so that a driver that comes later finds some left. A workflow offers a few more
than all drivers take, so that no driver waits for it. It does not offer many more, so that the groups of another run
are not far behind.
"""

from __future__ import annotations

import os
import re
import socket
from datetime import timedelta
from typing import NamedTuple

from temporalio import activity
from temporalio.api.enums.v1 import TaskQueueType
from temporalio.client import Client
from temporalio.service import RPCError

from ..dispatcher.driver_context.run_context import DriverContext, Lender
from ..planner.task_groups import GROUP_TASKS
from ..protocol.driver_count import identities
from ..protocol.messages import GROUPS
from ..scheduler.task_groups import count_of

LEAST = 2
"""Minimum of groups that a driver takes. While one closes, the other uses its slots."""
SPARE = 2
"""Groups offered beyond the number that drivers take."""
_ANSWER = timedelta(seconds=2)


class Drivers(NamedTuple):
    """The drivers of a queue, as far as Temporal answers."""

    alive: int
    lent: int
    """See `RunLocation.lent`."""


def of_driver(site: DriverContext) -> int:
    """Groups that a driver takes at once: enough for twice as many tasks as it has slots."""
    slots = sum(len(pool.slots) for _, pool in site.pools.open())
    return max(LEAST, count_of(2 * slots, GROUP_TASKS))


def there_are(site: DriverContext, drivers: int) -> int:
    """Groups that a run should offer at once. All drivers are assumed to be like this one."""
    return of_driver(site) * drivers + SPARE


def lender_identity(lender: Lender) -> str:
    """The identity with which this driver polls. It names the slots that the driver lends: Temporal knows which drivers
    live, so no other record of them is needed."""
    return f"{os.getpid()}@{socket.gethostname()}, {lender.slots} slots at {lender.address}"


def lender_of(identity: str) -> Lender | None:
    """The lender with this identity."""
    found = re.search(r", (\d+) slots at (\S+)$", identity)
    return Lender(int(found[1]), found[2]) if found else None


async def lenders(client: Client, queue: str) -> list[Lender]:
    """The drivers of a queue that lend slots, as far as Temporal answers."""
    return _lenders(await _identities(client, queue))


async def drivers_there(client: Client, site: DriverContext) -> Drivers:
    """The drivers that take groups of the activity's queue."""
    if site.one_host and site.lending is None:
        return Drivers(1, 0)
    found = await _identities(client, activity.info().task_queue.removesuffix(GROUPS))
    lent = sum(lender.slots for lender in _lenders(found)) if site.lending is not None else 0
    return Drivers(1 if site.one_host else max(1, len(found)), lent)


async def _identities(client: Client, queue: str) -> list[str]:
    try:
        return await identities(client, queue + GROUPS, TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY, _ANSWER)
    except RPCError:
        return []  # a wrong guess costs time only


def _lenders(found: list[str]) -> list[Lender]:
    return [lender for lender in map(lender_of, found) if lender is not None]
