"""treadle's planner, scheduler, dispatcher, Temporal workflow, client and command line.

General layout: `planner` (spec to `plan`), `scheduler` (what runs next), `dispatcher` (a segment to its committed set:
decisions, slots, ledger), `protocol` (what goes through Temporal), `temporal` (interpreter workflow, activities, the
driver), `client` (submit, look, steer), `environment`, `embedded` and `connecting` (home, profile, the server and
driver started for you), `runfiles` (where a run keeps its things), `allowed` and `copied_events` (what runs that events
started may touch, and read), `children` (runs of sub-workflows), `triggers`, `cli`.
"""
