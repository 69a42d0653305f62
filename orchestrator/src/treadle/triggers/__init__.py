"""Triggers: they start runs for events, and hold no other state (docs/triggers.md). The package has no public API:
`treadle.dsl` declares triggers, and the command line deploys them.

`event_mapping` and `run_ids` map an event to a run (pure). `start_requests` and `starter` start runs. `trigger_runner`,
`polling` and `service` keep triggers running. `registry` holds deployed workflows. `kafka`, `schedules`, `objects` and
`webhook` are the kinds of trigger.
"""

__all__: list[str] = []
