"""Names of runs and of the folders that hold their data.

A run that another run started for one of its stages is named after both, `nightly/load`. It lives inside its parent's
folder, as `nightly/_load`, so that removing the parent removes it too. Nothing else in that folder begins with `_`.
When the user runs the stage again, the second child run is `nightly/load-2`.
"""

from __future__ import annotations

CHILD = "_"
"""Prefix of a child's folder name in its parent's folder. Stage ids begin with a letter."""
INPUTS = "inputs"
"""Folder of the store with in-memory inputs, which runs share."""


def run_folder(run: str) -> str:
    """Return the folder of a run, below `runs/` in a store or at the top of a host's shared memory."""
    return run.replace("/", f"/{CHILD}")


def child_run(run: str, stage: str, number: int = 1) -> str:
    """Return the id of the run that a stage of another run starts; `number` counts the runs of that stage, from 1."""
    return f"{run}/{stage}" if number == 1 else f"{run}/{stage}-{number}"


def parent_run(run: str) -> str:
    """Return the id of the run that started this run; empty for a run that a user or a trigger started."""
    return run.rpartition("/")[0]


def stage_of(run: str) -> str:
    """Return the stage of the parent that the child run executes; stage ids contain no hyphen."""
    return run.rpartition("/")[2].partition("-")[0]
