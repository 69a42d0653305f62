"""The drivers of a queue."""

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
    return len([one for one in await identities(client, queue, kind, within) if one != but])


async def identities(client: Client, queue: str, kind: TaskQueueType.ValueType, within: timedelta) -> list[str]:
    """The identities of the processes that polled the queue for this kind of work within the last minute. Raises
    RPCError."""
    request = DescribeTaskQueueRequest(
        namespace=client.namespace, task_queue=TaskQueue(name=queue), task_queue_type=kind
    )
    answer = await client.workflow_service.describe_task_queue(request, timeout=within)
    now = time.time()
    return [poller.identity for poller in answer.pollers if now - poller.last_access_time.seconds < _POLLS]
