"""pi.yaml in Python: the same document. `treadle run workflow.py -i throws=64`."""

from pi import add, estimate, throw

from treadle.dsl import Workflow, range_

wf = Workflow("pi", seed=314)
throws = wf.input("throws", int, default=16, minimum=1, description="how often to throw a handful of points")
points = wf.input("points", int, default=1_000_000, minimum=1, description="in each handful")

thrown = wf.map("throw", range_(throws), uses=throw, with_={"points": points})
total = wf.reduce("estimate", thrown, per="all", combine=add, finish=estimate, metrics={"pi": "number"})

wf.output("pi", total.metrics.pi)
