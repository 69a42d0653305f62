"""How many drivers serve a queue."""

from __future__ import annotations

import time
from datetime import timedelta

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client

_POLLS = 70.0
"""Seconds: a driver's poll lasts up to a minute, so one that polled longer ago is gone."""


async def drivers(client: Client, queue: str, kind: TaskQueueType.ValueType, within: timedelta, but: str = "") -> int:
    """Processes that asked the queue for work of the kind within the last minute. Raises RPCError.

    `but`: those of this identity are left out.
    """
    request = DescribeTaskQueueRequest(
        namespace=client.namespace, task_queue=TaskQueue(name=queue), task_queue_type=kind
    )
    answer = await client.workflow_service.describe_task_queue(request, timeout=within)
    now = time.time()
    others = [poller for poller in answer.pollers if poller.identity != but]
    return sum(now - poller.last_access_time.seconds < _POLLS for poller in others)
