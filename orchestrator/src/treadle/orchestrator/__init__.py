"""treadle's planner, scheduler, dispatcher, Temporal workflow, client and command line.

General layout: `planner` (spec to `plan`), `scheduler` (what runs next), `dispatcher` (a segment to its committed set:
decisions, slots, ledger), `temporal` (the interpreter workflow, its activities, the driver), `client` (submit, look,
steer), `environment` and `embedded` (home, profile, the server and driver started for you), `runfiles` (where a run
keeps its things), `cli`.
"""
