"""treadle's engine: planner, scheduler, dispatcher, Temporal workflow and driver.

General layout: `planner` (spec to `plan`), `scheduler` (which node runs next), `dispatcher` (a segment to its committed
set: decisions, slots, ledger), `run_store` (where a run keeps its things), `reuse` (results of earlier runs),
`protocol` (what goes through Temporal), `temporal` (interpreter workflow, activities, driver), `executor_registry`
(executors of a profile), `environment` and `embedded` (home, profile, the server and driver that start for you),
`lifecycle` (events that drivers emit), `telemetry`, `cost`, `deployment` (functions at providers).
"""
