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

from temporalio import activity
from temporalio.api.enums.v1 import TaskQueueType
from temporalio.client import Client
from temporalio.service import RPCError

from ..dispatcher.driver_context.run_context import DriverContext, Lender
from ..planner.task_groups import GROUP_TASKS
from ..protocol.driver_count import drivers, identities
from ..protocol.messages import GROUPS
from ..scheduler.task_groups import count_of

LEAST = 2
"""Minimum of groups that a driver takes. While one closes, the other uses its slots."""
SPARE = 2
"""Groups offered beyond the number that drivers take."""
_ANSWER = timedelta(seconds=2)


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
    try:
        found = await identities(client, queue + GROUPS, TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY, _ANSWER)
    except RPCError:
        return []
    return [lender for lender in map(lender_of, found) if lender is not None]


async def drivers_there(client: Client, site: DriverContext) -> int:
    """The number of drivers that take groups of the activity's queue."""
    if site.one_host:
        return 1
    queue = activity.info().task_queue.removesuffix(GROUPS)
    try:
        return max(1, await drivers(client, queue + GROUPS, TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY, _ANSWER))
    except RPCError:
        return 1  # a wrong guess costs time only
