"""Records the histories of test_schedules_replay.py: `PYTHONPATH=tests python -m triggers.schedules_recording`.

Record again only when the commands of a tick, or of a run that emits events, changed on purpose, and no tick or run of
an older version is left anywhere.
"""

from __future__ import annotations

import asyncio
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest import mock

from orchestrator.record_histories import ITEMS, TESTS, mapped, plain_history, spec, without_machine
from temporalio.client import WorkflowExecutionStatus
from triggers.deployed import deploy, document

from treadle.client.testing.service import Service, service
from treadle.orchestrator.environment.home import Home
from treadle.primitives.events import Event
from treadle.triggers.registry.registry import Registry
from treadle.triggers.schedules.reconcile import Schedules
from treadle.triggers.schedules.tick_workflow import TICK

HISTORIES = Path(__file__).with_name("histories")
START = datetime(2026, 3, 1, tzinfo=UTC)
HOURLY = {"type": "schedule", "interval": "1h"}


class Nobody:
    """An outlet that accepts every event."""

    async def send(self, event: Event) -> None:
        pass

    async def close(self) -> None:
        pass


async def tick(here: Service, folder: Path, name: str, given: dict[str, Any]) -> str:
    """The workflow id of a backfill's single tick, once it is over."""
    registry = Registry(here.site.store, here.site.key)
    schedules = Schedules(here.client, "treadle", here.site.key)
    deploy(registry, document({"hourly": given}, name, inputs={"n": {"type": "integer"}}), folder)
    await schedules.reconcile(registry)
    await schedules.backfill(name, "hourly", START, START)
    query = f"WorkflowType = '{TICK}' AND WorkflowId STARTS_WITH '{name}.'"
    while True:
        async for execution in here.client.list_workflows(query):
            if execution.status != WorkflowExecutionStatus.RUNNING:
                return execution.id
        await asyncio.sleep(0.2)


async def recorded(folder: Path) -> dict[str, str]:
    """Name -> history."""
    home = Home(folder / "home")
    settings = 'lifecycle = { webhook = { url = "http://127.0.0.1:9/", secret = "any" } }'
    home.profiles.write_text(f"[told]\n{settings}\n")
    opened = "treadle.orchestrator.temporal.driver.open_outlet"
    with mock.patch.dict("os.environ", TREADLE_PROFILE="told"), mock.patch(opened, return_value=Nobody()):
        async with service(home) as here:
            ids = {
                "tick": await tick(here, folder, "ticked", HOURLY),
                "tick_refused": await tick(here, folder, "refused", {**HOURLY, "with": {"n": "many"}}),
                "told": "told",
            }
            stages = {"collected": {"type": "barrier", "input": "each"}, "last": mapped("collected")}
            await here.submit(spec(each=mapped(ITEMS), **stages), "told", folder, TESTS)
            await here.runs.end("told")
            return {name: await plain_history(here, id_) for name, id_ in ids.items()}


def main() -> None:
    HISTORIES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="treadle-histories-") as name:
        for kind, text in asyncio.run(recorded(Path(name))).items():
            (HISTORIES / f"{kind}.json").write_text(without_machine(text, name))


if __name__ == "__main__":
    main()
