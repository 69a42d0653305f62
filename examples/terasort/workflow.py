"""terasort.yaml in Python: the same document. `treadle run workflow.py -i source='data/rec-*' -i target=sorted`."""

from terasort import follow, keys, quantiles, report, sample_keys, summary

from treadle.dsl import Workflow, fixed

RETRY = {"maximum_attempts": 4, "initial_interval": "1s", "backoff_coefficient": 2.0, "maximum_interval": "30s"}

wf = Workflow("terasort", defaults={"timeout": "10m", "retry": RETRY})
source = wf.input("source", "uri", required=True, description="files of 100-byte records, such as data/rec-*")
target = wf.input("target", "uri", required=True, description="folder that the sorted parts go to")
partitions = wf.input("partitions", int, default=8, minimum=1)
rows = fixed(source, record_bytes=100, split="16MiB")

sample = wf.map("sample", rows, per="partition", uses=sample_keys, with_={"most": 1000})
cuts = wf.reduce("cuts", sample, per="all", uses=quantiles, with_={"partitions": partitions})
splits = wf.broadcast("splits", cuts, limit="8MiB")
in_order = wf.shuffle(
    "sorted",
    rows,
    by=keys,
    partitioner={"type": "range", "boundaries": splits},
    partitions=partitions,
    sort=True,
    deadline="2h",
    output=fixed(target),
)
summaries = wf.map("summaries", in_order, per="partition", uses=summary)
check = wf.reduce(
    "check", summaries, per="all", combine=follow, finish=report, metrics={"records": "integer", "checksum": "integer"}
)

wf.output("sorted", in_order.output.uri)
wf.output("records", check.metrics.records)
wf.output("checksum", check.metrics.checksum)
