"""How many task groups the drivers of a queue can take at once.

A driver takes a few at a time, so that another one that comes later finds some left; a workflow offers a few more than
all of them take, so that nobody waits for it, and few enough that those of another run are not far behind.
"""

from __future__ import annotations

from datetime import timedelta

from temporalio import activity
from temporalio.api.enums.v1 import TaskQueueType
from temporalio.client import Client
from temporalio.service import RPCError

from ..dispatcher.driver_context.run_context import Site
from ..planner.task_groups import GROUP_TASKS
from ..protocol.driver_count import drivers
from ..protocol.messages import GROUPS
from ..scheduler.task_groups import count_of

LEAST = 2
"""Groups that a driver takes: while one closes, the other one has its slots."""
SPARE = 2
"""Groups offered beyond those that drivers take."""
_ANSWER = timedelta(seconds=2)


def of_driver(site: Site) -> int:
    """Groups that a driver takes at once: enough that twice as many tasks are there as it has slots."""
    slots = sum(len(pool.slots) for _, pool in site.pools.open())
    return max(LEAST, count_of(2 * slots, GROUP_TASKS))


def there_are(site: Site, drivers: int) -> int:
    """Groups that a run should offer at once; other drivers are taken to be as this one is."""
    return of_driver(site) * drivers + SPARE


async def drivers_there(client: Client, site: Site) -> int:
    """Drivers that take groups of the activity's queue."""
    if site.one_host:
        return 1
    queue = activity.info().task_queue.removesuffix(GROUPS)
    try:
        return max(1, await drivers(client, queue + GROUPS, TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY, _ANSWER))
    except RPCError:
        return 1  # a guess costs time only
