"""The command line with small task groups in its plans: `python small_groups.py SIZE ARGUMENT...`."""

from __future__ import annotations

import sys

if __name__ == "__main__":
    from treadle.cli import main
    from treadle.orchestrator.planner import task_groups

    task_groups.GROUP_TASKS = int(sys.argv.pop(1))
    main()
