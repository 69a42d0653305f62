"""The growth of cost with width and depth: a stage of many partitions, tracked one by one, and a chain of many stages.

    python bench/width.py                       # the table of docs/decisions/0021, about ten minutes on two cores
    python bench/width.py --items 1000,10000 --stages 1,10

Each row is a separate process with an embedded Temporal server, one driver and two slots. The function returns its
argument. Everything is as durable as in any run. `driver` is processor time of the process with the driver, which other
work on the machine disturbs less. `memory` is its peak, above the memory before the run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

FUNCTION = "def same(record):\n    return record\n"
SMALL = {"type": "map", "input": {"range": 4}, "uses": "trivial:same"}


def document(items: int, stages: int) -> dict[str, Any]:
    """A workflow of one stage with `items` partitions of one item, or of `stages` stages without fusion."""
    wide = {"type": "map", "input": {"range": items}, "batch": {"maxItems": 1}, "uses": "trivial:same"}
    chain = {"s0": wide}
    for number in range(1, stages):
        unlike = {"retry": {"maximumAttempts": 3 + number}}
        chain[f"s{number}"] = {"type": "map", "input": f"s{number - 1}", "uses": "trivial:same", **unlike}
    return {"apiVersion": "treadle/v1", "name": "growth", "stages": chain}


async def measure(items: int, stages: int, folder: Path) -> dict[str, float]:
    from treadle.client.progress import Painter
    from treadle.client.testing.service import service
    from treadle.orchestrator.environment.home import Home

    (folder / "trivial.py").write_text(FUNCTION)
    sys.path.insert(0, str(folder))
    async with service(Home(folder / "home")) as here:
        await here.submit({**document(4, 1), "stages": {"s0": SMALL}}, "warm", folder, folder)
        await here.runs.end("warm")
        before, spent = peak(), time.process_time()
        await here.submit(document(items, stages), "grown", folder, folder)
        end = await here.runs.end("grown")
        assert end.failure is None, end
        spent = time.process_time() - spent
        view = await here.runs.view("grown")
        assert view.closed is not None
        begun = time.perf_counter()
        shown = Painter(here.runs.files("grown"), here.runs.files).stages(view, end)
        looked = time.perf_counter() - begun
        assert shown[0].committed == items
        seconds = (view.closed - view.started).total_seconds()
        memory = peak() - before
        return {"seconds": seconds, "driver": spent, "events": view.history_events, "memory": memory, "show": looked}


def peak() -> float:
    """The maximum of MiB of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def row(items: int, stages: int) -> None:
    command = [sys.executable, __file__, "--one", f"{items},{stages}"]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])
    count, unit = (items, "us/item") if stages == 1 else (stages, "us/stage")
    each, driver = (found[name] / count * 1e6 for name in ("seconds", "driver"))
    print(
        f"| {items:9,} | {stages:4} | {found['seconds']:7.1f} s | {each:8,.0f} {unit} | {driver:8,.0f} {unit} "
        f"| {found['events']:6,.0f} | {found['memory']:6,.0f} MiB | {found['show'] * 1e3:5.0f} ms |",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--items", default="1000,10000,100000,1000000")
    parser.add_argument("--stages", default="1,10,50,200")
    parser.add_argument("--one")
    given = parser.parse_args()
    if given.one:
        items, stages = map(int, given.one.split(","))
        with tempfile.TemporaryDirectory(prefix="treadle-growth-") as folder:
            print(json.dumps(asyncio.run(measure(items, stages, Path(folder)))))
        return
    print("| items | stages | time | each | driver | events | memory | show |\n|---|---|---|---|---|---|---|---|")
    for items in filter(None, given.items.split(",")):
        row(int(items), 1)
    for stages in filter(None, given.stages.split(",")):
        row(4, int(stages))


if __name__ == "__main__":
    main()
