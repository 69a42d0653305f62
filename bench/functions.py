"""A storm of 429: thousands of calls of an emulated AWS Lambda whose concurrency falls and rises during the run.

    python bench/functions.py [--calls 2000] [--slots 200] [--svg docs/lambda-rate.svg]

Every call runs in a sandbox with Lambda's real runtime client. Printed for each second: accepted calls, refused calls,
and the rate of the slots. At the end every task has its outcome, and none has spent an attempt.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from emulators.lambda_place import LambdaPlace, lambda_place
from harness.pictures import axes, line, picture, text

from treadle.executors import Place
from treadle.executors.functions.executor import FunctionExecutor
from treadle.executors.functions.rate_limiter import Rate
from treadle.executors.program import Outcome
from treadle.executors.testing import Workbench
from treadle.primitives import sealing

PHASES = ((0.0, 8), (0.4, 1), (0.6, 8))
"""(share of the calls, number of sandboxes from there on)."""


class Second(NamedTuple):
    second: int
    taken: int
    refused: int
    rate: float
    concurrency: int


async def storm(functions: LambdaPlace, folder: Path, calls: int, slots: int) -> tuple[FunctionExecutor, list[Second]]:
    key_file = str(folder / "key")
    sealing.load_or_create_key(key_file)
    functions.deploy(key_file)
    executor = FunctionExecutor(
        "lambda", functions.invoker(concurrency=slots), key_file=key_file, slots=slots, rate=Rate(400, least=2)
    )
    bench = Workbench(executor, Place(f"file://{folder}/store", key_file, ""), folder)
    tasks = iter([bench.task("same", [[index]]) for index in range(calls)])
    done, rates = [0], dict[int, tuple[float, int]]()
    begun = time.time()

    async def serve(slot: int) -> None:
        for task in tasks:
            (report,) = await bench.run(task, slot)
            assert isinstance(report, Outcome), report
            done[0] += 1
            functions.emulator.concurrency = next(n for share, n in reversed(PHASES) if done[0] >= share * calls)

    async def watch() -> None:
        while True:
            rates[int(time.time() - begun)] = (executor.rate, functions.emulator.concurrency)
            await asyncio.sleep(0.2)

    watching = asyncio.create_task(watch())
    await asyncio.gather(*(serve(slot) for slot in range(slots)))
    watching.cancel()
    assert (done[0], executor.usage.calls) == (calls, calls), "a call was wasted"
    await executor.stop()
    taken = Counter(int(moment - begun) for moment in functions.emulator.taken)
    refused = Counter(int(moment - begun) for moment in functions.emulator.throttled)
    return executor, [Second(s, taken[s], refused[s], *rates.get(s, (0.0, 0))) for s in range(max(taken) + 1)]


def plot(seconds: list[Second]) -> str:
    """Accepted calls, refused calls and the rate over time, as a small SVG."""
    wide, high, margin = 720, 260, 40
    top = max(max(s.taken + s.refused, s.rate) for s in seconds) * 1.05
    last = max(len(seconds) - 1, 1)

    step, scale = (wide - 2 * margin) / last, (high - 2 * margin) / top

    def curve(values: list[float], colour: str, more: str = "") -> str:
        return line([(margin + i * step, high - margin - v * scale) for i, v in enumerate(values)], colour, more)

    parts = [
        axes(margin, margin, wide - margin, high - margin),
        curve([float(s.taken) for s in seconds], "#1b7f4b"),
        curve([float(s.refused) for s in seconds], "#c0392b"),
        curve([s.rate for s in seconds], "#2c5aa0", 'stroke-dasharray="5 3"'),
        text(margin, high - 8, "0 s"),
        text(wide - margin - 20, high - 8, f"{last} s"),
        text(4, margin - 8, f"{top:.0f} calls/s"),
        text(margin + 120, 16, "taken", "#1b7f4b"),
        text(margin + 190, 16, "refused (429)", "#c0392b"),
        text(margin + 310, 16, "rate kept to", "#2c5aa0"),
    ]
    return picture(wide, high, parts)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--calls", type=int, default=2000)
    options.add_argument("--slots", type=int, default=200)
    options.add_argument("--svg", type=Path)
    chosen = options.parse_args()
    with (
        tempfile.TemporaryDirectory() as name,
        lambda_place(Path(name) / "code", concurrency=PHASES[0][1]) as functions,
    ):
        os.environ.update(functions.emulator.credentials)
        begun = time.monotonic()
        executor, seconds = asyncio.run(storm(functions, Path(name), chosen.calls, chosen.slots))
        spent = time.monotonic() - begun
    print(f"{'second':>6} {'taken':>6} {'refused':>8} {'rate':>7} {'sandboxes':>10}")
    for s in seconds:
        print(f"{s.second:>6} {s.taken:>6} {s.refused:>8} {s.rate:>7.1f} {s.concurrency:>10}")
    used = executor.usage
    print(f"{chosen.calls} tasks, {used.calls} calls, {used.throttled} refused, {used.cold} cold, in {spent:.0f} s")
    if chosen.svg:
        chosen.svg.write_text(plot(seconds))


if __name__ == "__main__":
    main()
