"""Temporal alone: its development server with a database file, a workflow and asynchronous activities in one worker.

Tuned: the limits that delay a burst of activities are raised, as in treadle's embedded server.
"""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import uuid
from datetime import timedelta
from pathlib import Path
from typing import Any

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.worker import Worker

with workflow.unsafe.imports_passed_through():
    from workloads.data import jobs
    from workloads.rivals.base import Base

QUEUE = "workloads"
PER_ACTIVITY = 100
_MINUTES = timedelta(minutes=5)
_TUNED = (
    "history.transferProcessorMaxPollRPS=2000",
    "frontend.namespaceRPS=100000",
    "frontend.rps=100000",
    "matching.rps=100000",
    "history.rps=100000",
)


@activity.defn
async def one(item: int) -> int:
    return int(jobs.same(item))


@activity.defn
async def many(items: list[int]) -> list[int]:
    return [jobs.same(item) for item in items]


@workflow.defn
class Stages:
    @workflow.run
    async def run(self, stages: int, width: int) -> int:
        done = 0
        for _ in range(stages):
            tasks = [workflow.execute_activity(one, item, start_to_close_timeout=_MINUTES) for item in range(width)]
            done += len(await asyncio.gather(*tasks))
        return done


@workflow.defn
class Items:
    @workflow.run
    async def run(self, count: int, size: int) -> list[int]:
        batches = [list(range(start, min(start + size, count))) for start in range(0, count, size)]
        tasks = [workflow.execute_activity(many, batch, start_to_close_timeout=_MINUTES) for batch in batches]
        return [item for batch in await asyncio.gather(*tasks) for item in batch]


class Rival(Base):
    def start(self) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        command = [str(Path(sys.executable).with_name("temporal")), "server", "start-dev", "--headless"]
        command += ["--ip", "127.0.0.1", "--port", str(port), "--log-level", "error"]
        command += ["--db-filename", str(self.folder / "temporal.db")]
        for setting in _TUNED:
            command += ["--dynamic-config-value", setting]
        self._server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        self._runner = asyncio.Runner()
        self._runner.run(self._connect(f"127.0.0.1:{port}"))

    async def _connect(self, address: str) -> None:
        while True:
            try:
                self._client = await Client.connect(address)
                break
            except RuntimeError:
                if self._server.poll() is not None:
                    raise
                await asyncio.sleep(0.05)
        self._worker = Worker(self._client, task_queue=QUEUE, workflows=[Stages, Items], activities=[one, many])
        self._serving = asyncio.ensure_future(self._worker.run())
        await self._execute(Stages.run, 1, 1)

    def stop(self) -> None:
        try:
            self._runner.run(asyncio.wait_for(self._worker.shutdown(), 10))
        finally:
            self._server.terminate()
            self._server.wait()

    async def _execute(self, run: Any, *arguments: int) -> Any:
        return await self._client.execute_workflow(run, args=arguments, id=uuid.uuid4().hex, task_queue=QUEUE)

    # -- workloads

    def fan_out(self, variant: str, target: Path) -> Any:  # noqa: ARG002
        return self._runner.run(self._execute(Items.run, self.sizes.items, PER_ACTIVITY))

    def pipeline(self, variant: str, target: Path) -> Any:  # noqa: ARG002
        return self._runner.run(self._execute(Stages.run, self.sizes.stages, self.sizes.width))
