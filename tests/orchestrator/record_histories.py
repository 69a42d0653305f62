"""Records the histories that test_replay.py replays: `PYTHONPATH=tests python -m orchestrator.record_histories [NAME]`.

Record again only when the workflow's commands changed on purpose and no run of an older version is left anywhere. A
history holds the run's messages and nothing of the machine: identities of workers are removed, and flags are files in a
folder whose name is replaced.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
import socket
import sys
import tempfile
from collections.abc import Awaitable, Callable, Collection, Iterator
from pathlib import Path
from typing import Any

from google.protobuf.json_format import MessageToDict, ParseDict
from temporalio.api.common.v1 import Payload
from temporalio.converter import ActivitySerializationContext, SerializationContext, WorkflowSerializationContext

from treadle.client.testing.service import Service, service
from treadle.orchestrator.environment.home import Home
from treadle.orchestrator.protocol import messages
from treadle.orchestrator.protocol.encryption import ENCODING
from treadle.triggers.schedules.tick_workflow import BEGIN_TICK

ENCRYPTED = base64.b64encode(ENCODING).decode()
HISTORIES = Path(__file__).with_name("histories")
TESTS = Path(__file__).parent.parent
M = "orchestrator.history_functions"
RETRY = {"retry": {"maximumAttempts": 1}}


def spec(**stages: Any) -> dict[str, Any]:
    return {"apiVersion": "treadle/v1", "name": "recorded", "defaults": RETRY, "stages": stages}


def mapped(given: Any, function: str = "same", **more: Any) -> dict[str, Any]:
    return {"type": "map", "input": given, "uses": f"{M}:{function}", **more}


ITEMS = {"range": 6, "partitions": 2}
MAP_REDUCE = spec(
    pairs=mapped(ITEMS, "pair"),
    groups={"type": "shuffle", "input": "pairs", "by": "key"},
    counts={"type": "reduce", "input": "groups", "per": "key", "combine": f"{M}:add"},
)
LOOP = spec(
    start=mapped(ITEMS),
    turns={
        "type": "loop",
        "state": {"data": "start", "count": 0},
        "maxIterations": 5,
        "until": "state.count >= 3",
        "stages": {"step": mapped("state.data")},
        "next": {"data": "step", "count": "${{ state.count + 1 }}"},
    },
    end=mapped("turns.state.data"),
)
SKIPPED = spec(
    sum={"type": "reduce", "input": ITEMS, "per": "all", "uses": f"{M}:total", "metrics": {"total": "integer"}},
    never=mapped("sum", when="stages.sum.metrics.total > 1000"),
    after=mapped("never"),
    other=mapped("sum", needs=["never"]),
)


def waiting(flag: Path, function: str) -> dict[str, Any]:
    return spec(first=mapped(ITEMS), gate=mapped("first", function, needs=["first"], **{"with": {"flag": str(flag)}}))


async def finished(here: Service, document: dict[str, Any], run: str, folder: Path) -> None:
    await here.submit(document, run, folder, TESTS)
    await here.runs.end(run)


async def paused_and_unpaused(here: Service, run: str, folder: Path) -> None:
    flag = folder / "go"
    await here.submit(waiting(flag, "slowly"), run, folder, TESTS)
    await asyncio.sleep(1.0)
    pausing = asyncio.ensure_future(here.runs.steer(run, "pause"))
    await asyncio.sleep(0.3)
    flag.touch()
    await pausing
    await asyncio.sleep(1.0)
    await here.runs.steer(run, "unpause")
    await here.runs.end(run)


async def failed(here: Service, run: str, folder: Path) -> None:
    await finished(here, waiting(folder / "mended", "needs_flag"), run, folder)


async def resumed(here: Service, run: str, folder: Path) -> None:
    await failed(here, run, folder)
    (folder / "mended").touch()
    await here.runs.resume(run)
    await here.runs.end(run)


async def paused_with_child(here: Service, run: str, folder: Path) -> None:
    """Two children. The first is paused with its parent."""
    flag = folder / "go"
    inner = waiting(flag, "slowly") | {"outputs": {"name": "${{ run.id }}"}}
    child = {"type": "workflow", "uses": inner}
    document = spec(sub=child, more={**child, "when": "stages.sub.outputs.name != ''"})
    await here.submit(document, run, folder, TESTS)
    await asyncio.sleep(2.0)
    await here.runs.steer(run, "pause")
    await asyncio.sleep(0.5)
    flag.touch()
    await here.runs.steer(run, "unpause")
    await here.runs.end(run)


Recorded = Callable[[Service, str, Path], Awaitable[None]]
RUNS: dict[str, Recorded] = {
    "map_reduce": lambda here, run, folder: finished(here, MAP_REDUCE, run, folder),
    "loop": lambda here, run, folder: finished(here, LOOP, run, folder),
    "skipped_stage": lambda here, run, folder: finished(here, SKIPPED, run, folder),
    "paused_and_unpaused": paused_and_unpaused,
    "failed": failed,
    "resumed": resumed,
    "parent": paused_with_child,
}
CHILDREN = {"parent/sub": "child"}
"""Child run -> the name of its history."""


async def plain_history(here: Service, run: str) -> str:
    """The history of a run's latest resumption in JSON, with every payload decrypted."""
    return await asyncio.to_thread(_decrypted, (await here.history(run)).to_json(), here, run)


def _decrypted(text: str, here: Service, run: str) -> str:
    runs = {run, *re.findall(r'"workflowId": "([^"]+)"', text)}
    codecs = [
        here.client.data_converter.with_context(one).payload_codec for one in _contexts(here.client.namespace, runs)
    ]

    def opened(payload: dict[str, Any]) -> dict[str, Any]:
        found = [asyncio.run(codec.decode([ParseDict(payload, Payload())])) for codec in codecs if codec]
        (plain,) = [one for (one,) in found if one.metadata["encoding"] != b"treadle/refused"]
        return MessageToDict(plain)

    def visit(value: Any) -> Any:
        if isinstance(value, dict):
            sealed = value.get("metadata", {}).get("encoding") == ENCRYPTED
            return opened(value) if sealed else {key: visit(one) for key, one in value.items()}
        return [visit(one) for one in value] if isinstance(value, list) else value

    return json.dumps(visit(json.loads(text)))


def _contexts(namespace: str, runs: Collection[str]) -> Iterator[SerializationContext]:
    for run in runs:
        yield WorkflowSerializationContext(namespace, run)
        for kind in (messages.OPEN_RUN, messages.RUN_NODE, messages.END_RUN, BEGIN_TICK):
            yield ActivitySerializationContext(namespace, None, kind, None, run, None, False)


async def record(names: list[str]) -> None:
    HISTORIES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="treadle-histories-") as name:
        async with service(Home(Path(name) / "home")) as here:
            for run in names or RUNS:
                folder = Path(name) / run
                folder.mkdir()
                await RUNS[run](here, run, folder)
                below = {child: known for child, known in CHILDREN.items() if child.startswith(f"{run}/")}
                for each, known in {run: run, **below}.items():
                    text = await plain_history(here, each)
                    (HISTORIES / f"{known}.json").write_text(without_machine(text, name))


_HIDDEN = {"identity": "worker", "stackTrace": "", "workerTaskQueue": {"name": "sticky"}, "stickyTaskQueue": "sticky"}


def without_machine(text: str, folder: str) -> str:
    """The text with all names of this machine replaced."""

    def visit(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: _HIDDEN.get(key, visit(one)) for key, one in value.items()}
        return [visit(one) for one in value] if isinstance(value, list) else value

    events = visit(json.loads(text))
    for event in events["events"]:
        queue = event.get("workflowTaskScheduledEventAttributes", {}).get("taskQueue", {})
        if queue.get("kind") == "TASK_QUEUE_KIND_STICKY":
            queue["name"] = "sticky"
    cleaned = json.dumps(events, indent=1)
    for name in (folder, socket.gethostname(), str(TESTS.parent)):
        assert not re.search(rf"\b{re.escape(name)}\b", cleaned), name
    return cleaned + "\n"


if __name__ == "__main__":
    asyncio.run(record(sys.argv[1:]))
