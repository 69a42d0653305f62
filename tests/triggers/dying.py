"""`treadle triggers`, killed just before or after its n-th commit of offsets: python dying.py before|after N.

Before: only Temporal knows which runs it had started. After: the runs of committed records must exist.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from itertools import count

from treadle import cli
from treadle.triggers.kafka import confluent_cluster
from treadle.triggers.kafka.machine_events import KafkaPartition


def main(when: str, at: int) -> None:
    commit, commits = confluent_cluster.ClusterSource.commit, count(1)

    def dying(self: confluent_cluster.ClusterSource, offsets: Mapping[KafkaPartition, int]) -> None:
        last = next(commits) >= at
        if last and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        commit(self, offsets)
        if last:
            os.kill(os.getpid(), signal.SIGKILL)

    confluent_cluster.ClusterSource.commit = dying  # type: ignore[method-assign]
    sys.argv = ["treadle", "triggers"]
    cli.main()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
