"""Schedules: times that start runs, with Temporal's own Schedules (https://docs.temporal.io/schedule).

`tick_runs` maps a tick to a run (pure). `tick_workflow` is the workflow of one tick and `tick_activity` its activity.
`desired_schedules` computes the Schedules for deployed triggers (pure); `reconcile` creates them, and backfills.
"""
