"""A host with keepers that counts until a line of input ends it. Each line of its output is an answer of the counter.

python keepers_host.py FOLDER HOST REPLICAS ABANDONED DURABILITY
"""

from __future__ import annotations

import select
import sys
from typing import Any

from treadle.primitives.objects import Counter, Keepers
from treadle.primitives.objects import keepers as supervision


def main() -> None:
    folder, host, replicas, abandoned, durability = sys.argv[1:]
    supervision.ABANDONED = float(abandoned)
    settings: dict[str, Any] = {"host": host, "replicas": int(replicas), "durability": durability}
    with Keepers(folder, **settings) as keepers:
        hits = keepers.object("hits", Counter)
        while not select.select([sys.stdin], [], [], 0.01)[0]:
            sys.stdout.write(f"{hits.increment()}\n")
            sys.stdout.flush()
        sys.stdin.readline()
        sys.stdout.write("end\n")
        sys.stdout.flush()
        sys.stdin.readline()


if __name__ == "__main__":
    main()
