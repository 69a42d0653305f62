"""etl.yaml in Python: the same document. `treadle run workflow.py -i orders='orders/*.txt'`."""

from etl import audit, customer, parse, total

from treadle.dsl import Workflow, csv, run, text

wf = Workflow("etl")
orders = wf.input("orders", "uri", default="orders/*.txt", description="one JSON order a line")
partitions = wf.input("partitions", int, default=4, minimum=1)

parsed = wf.map(
    "parse",
    text(orders),
    uses=parse,
    tolerated_failures="5%",
    failed_items=f"out/{run.id}/rejected",
    retry={"maximum_attempts": 3, "non_retryable_error_types": ["ValueError"]},
    metrics={"orders": "sum"},
)
by_customer = wf.shuffle("by_customer", parsed, by=customer, partitions=partitions, sort=True)
files = csv(f"out/{run.id}/totals", columns={"customer": "string", "cents": "int64"})
totals = wf.reduce("totals", by_customer, per="key", uses=total, output=files)
checked = wf.reduce(
    "audit", totals, per="all", uses=audit, when=parsed.metrics.orders > 0, metrics={"cents": "integer"}
)

wf.output("totals", totals.output.uri)
wf.output("rejected", f"out/{run.id}/rejected")
wf.output("cents", checked.metrics.cents)
