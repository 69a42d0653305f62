"""Names of runs, and where they keep their things.

A run that another run started for one of its stages is named after both, `nightly/load`. It lives inside its parent's
folder, as `nightly/_load`: whoever removes the parent removes it too, and nothing else there begins with `_`. Where a
person had the stage run again, the second one is `nightly/load-2`.
"""

from __future__ import annotations

CHILD = "_"
"""Begins the folder of a child in that of its parent. Ids of stages begin with a letter."""


def run_folder(run: str) -> str:
    """The folder of a run, below `runs/` in a store or at the top of a host's shared memory."""
    return run.replace("/", f"/{CHILD}")


def child_run(run: str, stage: str, number: int = 1) -> str:
    """The id of the run that a stage of another one starts; `number` counts those of that stage, from 1."""
    return f"{run}/{stage}" if number == 1 else f"{run}/{stage}-{number}"


def parent_run(run: str) -> str:
    """The id of the run that started this one; empty for one that people or triggers started."""
    return run.rpartition("/")[0]


def stage_of(run: str) -> str:
    """The stage of the parent that a child run is; no stage has a hyphen in its id."""
    return run.rpartition("/")[2].partition("-")[0]
