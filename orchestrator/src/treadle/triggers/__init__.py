"""Events start runs. A trigger turns events into starts and holds no other state (docs/triggers.md).

General layout: `event_mapping` and `run_ids` (the meaning of an event: pure), `start_requests` and `starter` (how a run
is started), `trigger_runner`, `polling` and `service` (how triggers are kept running), `registry` (deployed workflows);
`kafka`, `schedules`, `objects` and `webhook` are the kinds of trigger.
"""
