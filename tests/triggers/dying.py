"""`treadle triggers`, killed at once before its n-th commit of offsets: python dying.py N.

What it had started by then, nobody but Temporal knows.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from itertools import count

from treadle.orchestrator import cli
from treadle.orchestrator.triggers.kafka import cluster
from treadle.orchestrator.triggers.kafka.happenings import Partition


def main(at: int) -> None:
    commit, commits = cluster.ClusterSource.commit, count(1)

    def dying(self: cluster.ClusterSource, offsets: Mapping[Partition, int]) -> None:
        if next(commits) >= at:
            os.kill(os.getpid(), signal.SIGKILL)
        commit(self, offsets)

    cluster.ClusterSource.commit = dying  # type: ignore[method-assign]
    sys.argv = ["treadle", "triggers"]
    cli.main()


if __name__ == "__main__":
    main(int(sys.argv[1]))
