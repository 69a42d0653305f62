"""orders_etl.yaml in Python: the same document. `treadle deploy workflow.py`."""

from orders_etl import customer, parse, upsert

from treadle.dsl import Workflow, batch, event, kafka, schedule, trigger

wf = Workflow("orders_etl")
orders = wf.input("orders", "dataset", required=True, description="objects with order_id, customer and cents")
partitions = wf.input("partitions", int, default=4, minimum=1)

live = kafka(
    "orders",
    ["orders.v1"],
    format="cloudevents",
    filter=event.type == "com.example.order.created.v1",
    schema={"type": "object", "required": ["order_id", "customer", "cents"]},
    batch=batch(max_events=500, max_wait="2s"),
    start_from="earliest",
    max_active=4,
    dead_letter={"topic": "orders.v1.dlt"},
)
nightly = schedule(cron="0 2 * * *", timezone="Europe/Paris", overlap="skip", catchup_window="1h")
wf.trigger("live", live, with_={"orders": trigger.events})
wf.trigger("nightly", nightly, with_={"orders": {"uri": f"lake/dt={trigger.time.date}/*.jsonl", "format": "jsonl"}})

parsed = wf.map(
    "parse",
    orders,
    uses=parse,
    tolerated_failures="5%",
    retry={"maximum_attempts": 3, "non_retryable_error_types": ["ValueError"]},
)
by_customer = wf.shuffle("by_customer", parsed, by=customer, partitions=partitions)
loaded = wf.map(
    "load",
    by_customer,
    per="partition",
    uses=upsert,
    with_={"warehouse": wf.secret("warehouse")},
    metrics={"rows": "sum"},
)

wf.output("loaded", loaded.metrics.rows)
