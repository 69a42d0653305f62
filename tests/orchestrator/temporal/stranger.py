"""Another user of the machine, with access to Temporal's port but without the deployment key."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from temporalio.api.command.v1 import Command
from temporalio.api.common.v1 import Payload, Payloads, WorkflowExecution
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import (
    GetWorkflowExecutionHistoryRequest,
    PollWorkflowTaskQueueRequest,
    RespondActivityTaskCompletedByIdRequest,
    RespondActivityTaskFailedByIdRequest,
    RespondWorkflowTaskCompletedRequest,
)
from temporalio.client import Client

NOBODY = 65534


def plain(value: Any) -> Payload:
    """JSON in the encoding of the `temporal` command."""
    return Payload(metadata={"encoding": b"json/plain"}, data=json.dumps(value).encode())


@dataclass
class Stranger:
    """Acts by Temporal's own command as another user, and by a client without a codec."""

    command: Path
    client: Client
    address: str

    def temporal(self, *arguments: str) -> str:
        """The output of the command, run as an unprivileged user if the tests run as root."""
        where = ["--address", self.address, "--namespace", self.client.namespace]
        as_nobody: dict[str, Any] = {"user": NOBODY, "group": NOBODY} if os.geteuid() == 0 else {}
        environ = {"HOME": "/nonexistent", "PATH": "/usr/bin:/bin"}
        done = subprocess.run(
            [self.command, *arguments, *where], capture_output=True, text=True, timeout=60, env=environ, **as_nobody
        )
        return str(done.stdout + done.stderr)

    async def history(self, run: str) -> list[HistoryEvent]:
        request = GetWorkflowExecutionHistoryRequest(
            namespace=self.client.namespace, execution=WorkflowExecution(workflow_id=run)
        )
        answer = await self.client.workflow_service.get_workflow_execution_history(request)
        return list(answer.history.events)

    async def complete(self, run: str, activity: str, *payloads: Payload) -> None:
        request = RespondActivityTaskCompletedByIdRequest(
            namespace=self.client.namespace, workflow_id=run, activity_id=activity, result=Payloads(payloads=payloads)
        )
        await self.client.workflow_service.respond_activity_task_completed_by_id(request)

    async def fail(self, run: str, activity: str, kind: str) -> None:
        request = RespondActivityTaskFailedByIdRequest(
            namespace=self.client.namespace, workflow_id=run, activity_id=activity
        )
        request.failure.message = "made up"
        request.failure.application_failure_info.type = kind
        request.failure.application_failure_info.non_retryable = True
        await self.client.workflow_service.respond_activity_task_failed_by_id(request)

    async def end(self, queue: str, command: Command) -> None:
        """Act as a worker: end the next run of the queue."""
        poll = PollWorkflowTaskQueueRequest(
            namespace=self.client.namespace, task_queue=TaskQueue(name=queue), identity="stranger"
        )
        task = await self.client.workflow_service.poll_workflow_task_queue(poll)
        answer = RespondWorkflowTaskCompletedRequest(task_token=task.task_token, commands=[command])
        await self.client.workflow_service.respond_workflow_task_completed(answer)

    async def open_activity(self, run: str) -> str:
        """The id of the running activity."""
        about = await self.client.get_workflow_handle(run).describe()
        return str(about.raw_description.pending_activities[0].activity_id)


@contextmanager
def public_command() -> Iterator[Path]:
    """A copy of Temporal's command that every user may run."""
    with tempfile.TemporaryDirectory(prefix="treadle-stranger-") as name:
        os.chmod(name, 0o755)
        copy = Path(name) / "temporal"
        shutil.copy(Path(sys.executable).with_name("temporal"), copy)
        copy.chmod(copy.stat().st_mode | stat.S_IROTH | stat.S_IXOTH)
        yield copy
