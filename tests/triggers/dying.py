"""`treadle triggers`, killed at once before or after its n-th commit of offsets: python dying.py before|after N.

Before: what it had started by then, nobody but Temporal knows. After: what it committed must be started.
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


def main(when: str, at: int) -> None:
    commit, commits = cluster.ClusterSource.commit, count(1)

    def dying(self: cluster.ClusterSource, offsets: Mapping[Partition, int]) -> None:
        last = next(commits) >= at
        if last and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        commit(self, offsets)
        if last:
            os.kill(os.getpid(), signal.SIGKILL)

    cluster.ClusterSource.commit = dying  # type: ignore[method-assign]
    sys.argv = ["treadle", "triggers"]
    cli.main()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
