"""Training by a gang of which a member is killed again and again, beside the same training undisturbed.

    python bench/checkpoints.py [--members 64] [--kill-every 5] [--steps 2000] [--rounds 3]

The training is logistic regression by gradient descent (harness/training.py): in each step the members sum their
gradients of 50 numbers, and every 10 steps they save a checkpoint. A short run starts the processes. A round is a run
of each kind, in turn; the time is from submission to result. Prints the seconds, the kills, and the ratio of the
medians. The weights of all runs must be equal, bit for bit.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import signal
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness import training
from harness.bench_home import bench_home

from treadle.client import Client

EVERY = 10
"""Steps between two checkpoints."""


class Killer:
    """Kills a random member every `seconds`, as long as the folder names its process."""

    def __init__(self, folder: Path, seconds: float) -> None:
        self._folder, self._seconds = folder, seconds
        self._random, self._end = random.Random(7), threading.Event()
        self.kills = 0
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while not self._end.wait(self._seconds):
            names = sorted(self._folder.iterdir())
            if names:
                with contextlib.suppress(ProcessLookupError, ValueError):  # it has just been killed, or begins
                    os.kill(int(self._random.choice(names).read_text()), signal.SIGKILL)
                    self.kills += 1

    def close(self) -> None:
        self._end.set()
        self._thread.join()


@contextmanager
def environment(members: int) -> Iterator[tuple[Client, Path]]:
    """A client of an embedded driver with a slot for each member, and the workflow."""
    with bench_home(f"[bench]\nslots = {members}\n") as home, Client(profile="bench", home=home.path) as client:
        document = home.path / "training.yaml"
        document.write_text(training.DOCUMENT.replace("MEMBERS", str(members)))
        shutil.copy(training.__file__, home.path / "training.py")
        yield client, document


def trained(client: Client, document: Path, steps: int, kill_every: float) -> tuple[float, int, object]:
    """Seconds, kills and weights of one run. `kill_every`: 0 for none."""
    with tempfile.TemporaryDirectory(prefix="treadle-bench-") as folder:
        killer = Killer(Path(folder), kill_every) if kill_every else None
        began = time.perf_counter()
        run = client.run(document, {"folder": folder, "steps": steps, "every": EVERY})
        took = time.perf_counter() - began
        if killer:
            killer.close()
        return took, killer.kills if killer else 0, run.stage("fit").records()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", type=int, default=64)
    parser.add_argument("--kill-every", type=float, default=5.0, metavar="SECONDS")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    times: dict[str, list[float]] = {"undisturbed": [], "killed": []}
    weights: list[object] = []
    with environment(options.members) as (client, document):
        trained(client, document, EVERY, 0.0)  # starts the processes
        for _ in range(options.rounds):
            for name, every in (("undisturbed", 0.0), ("killed", options.kill_every)):
                took, kills, found = trained(client, document, options.steps, every)
                times[name].append(took)
                weights.append(found)
                print(f"{name}: {took:.1f} s, {kills} kills", flush=True)
    assert all(one == weights[0] for one in weights), "the weights differ"
    medians = {name: statistics.median(all_times) for name, all_times in times.items()}
    print(f"medians: {medians}; ratio {medians['killed'] / medians['undisturbed']:.2f}")


if __name__ == "__main__":
    main()
