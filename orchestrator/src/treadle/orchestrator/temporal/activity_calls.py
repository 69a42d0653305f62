"""The workflow's calls of activities, with their timeouts and retries."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import RetryPolicy

from ..dispatcher.orders import NodeOrder
from ..protocol import messages
from ..protocol.messages import Ending, NodeReport, Opened, Received

HEARTBEAT_TIMEOUT = timedelta(seconds=3)
"""A driver that is silent this long counts as dead. Two dispatchers at once are harmless (see the ledger)."""
LONGEST = timedelta(days=365)
_RETRY = RetryPolicy(initial_interval=timedelta(seconds=1), backoff_coefficient=1.0)
"""Retries follow only a lost driver or a store that does not answer, so longer intervals would only lose time."""
_TELLING = timedelta(minutes=5)
"""A finished run waits at most twice this time for a driver to publish its end."""
_OPEN_HEARTBEAT = timedelta(seconds=10)
"""Longer than HEARTBEAT_TIMEOUT, since a driver that plans a large run may be slow to send heartbeats, and opening
again costs more than waiting. The same holds for publishing the end."""
_OPEN_RETRY = RetryPolicy(initial_interval=timedelta(seconds=1), maximum_interval=timedelta(seconds=10))
_PATIENCE = {"heartbeat_timeout": _OPEN_HEARTBEAT, "retry_policy": _OPEN_RETRY}
_ONCE = RetryPolicy(maximum_attempts=1)
"""Each try of a local activity adds to the history. Retries of other activities do not."""
_SHORT = timedelta(minutes=1)
"""Much longer than a driver lets a local activity wait for a node."""


def open_run(about: list[Any], *, locally: bool) -> workflow.ActivityHandle[Opened]:
    """`about`: the RunStart, and the start's time. `locally`: in the driver that has the workflow task, once."""
    begin: Any = workflow.start_local_activity if locally else workflow.start_activity
    patience = {"retry_policy": _ONCE} if locally else _PATIENCE
    handle: workflow.ActivityHandle[Opened] = begin(
        messages.OPEN_RUN,
        args=about,
        result_type=Opened,
        start_to_close_timeout=timedelta(minutes=10),
        **patience,
    )
    return handle


def run_node_locally(order: NodeOrder) -> workflow.ActivityHandle[NodeReport]:
    """Short work in the driver that has the workflow task, without a request to the server. It is tried once."""
    return workflow.start_local_activity(
        messages.RUN_NODE,
        order,
        result_type=NodeReport,
        start_to_close_timeout=_SHORT,
        retry_policy=_ONCE,
        cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
    )


def run_node(order: NodeOrder) -> workflow.ActivityHandle[NodeReport]:
    """The work of an order, in any driver, with retries. Task groups have a queue of their own."""
    grouped, last = order.group >= 0, [order, *order.then][-1].node
    title = f"{order.node}, group {order.group}" if grouped else " to ".join(dict.fromkeys((order.node, last)))
    return workflow.start_activity(
        messages.RUN_NODE,
        order,
        task_queue=workflow.info().task_queue + messages.GROUPS if grouped else None,
        result_type=NodeReport,
        summary=title,
        start_to_close_timeout=LONGEST,
        heartbeat_timeout=HEARTBEAT_TIMEOUT,
        retry_policy=_RETRY,
        cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
    )


def end_run(ending: Ending) -> workflow.ActivityHandle[Received]:
    """Publish a run's end. A cancelled run does not wait for it."""
    return workflow.start_activity(
        messages.END_RUN,
        ending,
        result_type=Received,
        start_to_close_timeout=_TELLING,
        schedule_to_close_timeout=2 * _TELLING,
        heartbeat_timeout=_OPEN_HEARTBEAT,
        retry_policy=_RETRY,
        cancellation_type=workflow.ActivityCancellationType.ABANDON,
    )
