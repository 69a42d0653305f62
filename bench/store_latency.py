"""Word count and terasort on an S3 server, with a delay added to each request, beside the same without.

    python bench/store_latency.py [--delay 0.03] [--rounds 3] [--megabytes 64] [--only wordcount,terasort]

Inputs, outputs, blocks and ledgers are on a SeaweedFS server on loopback, behind a proxy that delays requests and
counts them. Both delays have a driver of their own with two slots, and take turns in every round, after a round to warm
up. The time is from submission to the end of the run. Prints the medians, their ratio, and the requests of a run.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from harness.bench_home import bench_home
from harness.slow_proxy import SlowProxy, slow_proxy

from treadle.client import Client
from treadle.primitives.stores.store import Store
from treadle.primitives.testing.s3 import S3Endpoint, seaweedfs

EXAMPLES = Path(__file__).parents[1] / "examples"
FILES = 8


class Place(NamedTuple):
    """A driver whose store is behind a proxy."""

    client: Client
    proxy: SlowProxy


@contextmanager
def place(endpoint: S3Endpoint, delay: float) -> Iterator[Place]:
    profile = f'[bench]\nslots = 2\nstore = "s3://treadle/work-{delay:g}"\n'
    with slow_proxy(int(endpoint.url.rpartition(":")[2]), delay) as proxy, bench_home(profile) as home:
        os.environ.update(endpoint.environment, AWS_ENDPOINT_URL=f"http://127.0.0.1:{proxy.port}")
        with Client(profile="bench", home=home.path) as client:
            client.run(EXAMPLES / "pi/pi.yaml")  # starts the driver
            yield Place(client, proxy)


def write_inputs(store: Store, megabytes: int) -> None:
    words = [f"word{number}" for number in range(5000)]
    for index in range(FILES):
        random, size = np.random.default_rng(index), (megabytes << 20) // FILES
        lines = random.zipf(1.3, (size // 100, 12)) % len(words)
        store.put(f"in/text-{index}.txt", "\n".join(" ".join(words[one] for one in line) for line in lines).encode())
        store.put(f"in/rec-{index}", random.integers(33, 127, size // 100 * 100, dtype=np.uint8).tobytes())


def copied(folder: Path, name: str) -> Path:
    """An example whose outputs are on the server."""
    shutil.copytree(EXAMPLES / name, folder / name)
    document = folder / name / f"{name}.yaml"
    document.write_text(document.read_text().replace('"out/', '"s3://treadle/out/'))
    return document


def run(at: Place, document: Path, target: str) -> tuple[float, int]:
    """Seconds and requests of a run."""
    os.environ["AWS_ENDPOINT_URL"] = f"http://127.0.0.1:{at.proxy.port}"
    inputs: dict[str, Any] = {
        "wordcount": {"corpus": "s3://treadle/in/text-*.txt"},
        "terasort": {"source": "s3://treadle/in/rec-*", "target": f"s3://treadle/{target}"},
    }[document.stem]
    before, began = at.proxy.requests, time.perf_counter()
    at.client.run(document, inputs)
    return time.perf_counter() - began, at.proxy.requests - before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--delay", type=float, default=0.03, metavar="SECONDS")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--megabytes", type=int, default=64)
    parser.add_argument("--only", default="wordcount,terasort")
    given = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="treadle-bench-") as folder,
        seaweedfs() as endpoint,
        place(endpoint, 0.0) as near,
        place(endpoint, given.delay) as far,
    ):
        write_inputs(Store.open("s3://treadle", **endpoint.options), given.megabytes)
        print("| | without | with | ratio | requests |\n|---|--:|--:|--:|--:|")
        for name in given.only.split(","):
            document, sides = copied(Path(folder), name), {"near": near, "far": far}
            rounds = [
                [run(at, document, f"{side}-{number}") for side, at in sides.items()]
                for number in range(given.rounds + 1)
            ]
            one, other = (statistics.median(both[side][0] for both in rounds[1:]) for side in (0, 1))
            requests = statistics.median(both[1][1] for both in rounds[1:])
            print(f"| {name} | {one:.2f} s | {other:.2f} s | {other / one:.2f} | {requests:,.0f} |", flush=True)


if __name__ == "__main__":
    main()
