"""Times that start runs: Temporal's own Schedules (https://docs.temporal.io/schedule).

General layout: `ticks` (pure: what a tick starts), `flow` (the workflow of one tick) and `desk` (its activity),
`wanted` (pure: the Schedules that deployed triggers ask for), `reconcile` (making it so, backfills).
"""
