"""Events start runs. A trigger turns events into starts and holds no other state (docs/triggers.md).

General layout: `mapping` and `identity` (what events mean: pure), `starting` and `starter` (what is asked for, and of
whom), `running`, `rounds` and `service` (what keeps triggers going), `registry` (what is deployed); `kafka`,
`schedules`, `objects` and `webhook` are the kinds, `lifecycle` tells others.
"""
