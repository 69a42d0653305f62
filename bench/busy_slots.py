"""The share of busy slots in a run of many single tasks, between the start of the first and the end of the last.

    python bench/busy_slots.py [--tasks 100000] [--milliseconds 0,1,5]

Each task has one item and sleeps. A slot is busy from the start of a task to its end, as a worker records them and
`treadle report` draws them. The rest is the time between tasks: a result on its way, the next task on its way, and a
driver that has the same two processors. Prints the busy share, and the longest time in which both slots are idle.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from harness.bench_home import bench_home

from treadle.cli.view.report.facts import Attempted, gather
from treadle.client import Client
from treadle.client.environment import ClientEnvironment
from treadle.orchestrator.environment.home import Home
from treadle.orchestrator.plan.plan import Plan

SLOTS = 2
DOCUMENT = """apiVersion: treadle/v1
name: single
stages:
  one: {type: map, input: {range: TASKS, partitions: TASKS}, uses: "sleeping:pause", with: {seconds: SECONDS}}
"""
FUNCTION = "import time\n\ndef pause(value, seconds):\n    time.sleep(seconds)\n    return value\n"
PLAIN = "def pause(value, seconds):\n    return value\n"


def attempts(home: Home, tasks: int, milliseconds: float) -> Sequence[Attempted]:
    """A run, and its attempts in the order of their start."""
    folder = home.path / f"single-{milliseconds}"
    folder.mkdir()
    text = DOCUMENT.replace("TASKS", str(tasks)).replace("SECONDS", str(milliseconds / 1000))
    (folder / "single.yaml").write_text(text)
    (folder / "sleeping.py").write_text(FUNCTION if milliseconds else PLAIN)
    with Client(profile="bench", home=home.path) as client:
        run = client.run(str(folder / "single.yaml"))
    files = ClientEnvironment(profile="bench", home=home.path).files(run.id)
    plan = files.find(Plan, "plan")
    assert plan is not None
    return gather(files, plan, ()).attempts


def span(found: Sequence[Attempted]) -> float:
    """Seconds from the first start to the last end."""
    return max(one.started + one.seconds for one in found) - found[0].started


def longest_gap(found: Sequence[Attempted]) -> float:
    """The longest time without any task, in seconds."""
    longest, end = 0.0, found[0].started
    for one in found:
        longest, end = max(longest, one.started - end), max(end, one.started + one.seconds)
    return longest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=100_000)
    parser.add_argument("--milliseconds", default="0,1,5")
    chosen = parser.parse_args()
    with bench_home(f"[bench]\nslots = {SLOTS}\n") as home:
        attempts(home, 10, 0.5)
        for milliseconds in map(float, chosen.milliseconds.split(",")):
            found = attempts(home, chosen.tasks, milliseconds)
            assert len(found) == chosen.tasks, len(found)
            share = sum(one.seconds for one in found) / SLOTS / span(found)
            print(
                f"{chosen.tasks:,} tasks of {milliseconds:g} ms: slots {share:.1%} busy, {span(found):.1f} s, "
                f"no task at all for {longest_gap(found) * 1000:.0f} ms at most",
                flush=True,
            )


if __name__ == "__main__":
    main()
