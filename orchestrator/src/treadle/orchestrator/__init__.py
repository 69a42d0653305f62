"""treadle's engine: planner, scheduler, dispatcher, Temporal workflow and driver. It has no public API: programs use
`treadle.client`.

planner            turns a spec into a `plan`
scheduler          decides which node runs next
dispatcher         runs a segment up to its committed set: decisions, slots, ledger
run_store          the places of a run's files
reuse              results of earlier runs
protocol           the messages that pass through Temporal
temporal           the interpreter workflow, activities, driver
executor_registry  the executors of a profile
environment        home and profile
embedded           the server and the driver that start automatically
lifecycle          events that drivers emit
telemetry          metrics and logs
cost               estimates and bills
deployment         functions at providers
"""

__all__: list[str] = []
