"""gang.yaml in Python: the same document. `treadle run workflow.py -i steps=200`."""

from gang import agreed, draw, train

from treadle.dsl import Workflow, range_

wf = Workflow("gang", seed=5)
rows = wf.input("rows", int, default=50_000, minimum=1, description="rows of each member")
steps = wf.input("steps", int, default=100, minimum=1, description="of the descent")
rate = wf.input("rate", float, default=0.2, description="length of a step")

drawn = wf.map("draw", range_(2), per="partition", uses=draw, with_={"rows": rows})
trained = wf.map("train", drawn, per="partition", uses=train, with_={"steps": steps, "rate": rate}, gang=2)
model = wf.reduce("model", trained, per="all", uses=agreed, metrics={"error": "number"})

wf.output("error", model.metrics.error)
