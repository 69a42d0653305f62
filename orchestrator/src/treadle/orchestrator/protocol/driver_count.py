"""The number of drivers of a queue."""

from __future__ import annotations

import time
from datetime import timedelta

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client

_POLLS = 70.0
"""Seconds. A driver's poll lasts up to a minute, so a driver with an older poll is gone."""


async def drivers(client: Client, queue: str, kind: TaskQueueType.ValueType, within: timedelta, but: str = "") -> int:
    """The number of processes that polled the queue for this kind of work within the last minute. Raises RPCError.

    `but`: an identity to leave out.
    """
    request = DescribeTaskQueueRequest(
        namespace=client.namespace, task_queue=TaskQueue(name=queue), task_queue_type=kind
    )
    answer = await client.workflow_service.describe_task_queue(request, timeout=within)
    now = time.time()
    others = [poller for poller in answer.pollers if poller.identity != but]
    return sum(now - poller.last_access_time.seconds < _POLLS for poller in others)
