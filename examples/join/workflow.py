"""join.yaml in Python: the same document. `treadle run workflow.py`."""

from join import by_id, match, rows

from treadle.dsl import Workflow, csv, run

wf = Workflow("join")
people_files = wf.input("people", "uri", default="people.csv")
visits_files = wf.input("visits", "uri", default="visits.csv")
partitions = wf.input("partitions", int, default=4, minimum=1)

people = wf.map("people", csv(people_files), uses=by_id)
visits = wf.map("visits", csv(visits_files), uses=by_id)
together = wf.shuffle("together", [people, visits], by="key", partitions=partitions, sort=True)
joined = wf.reduce("joined", together, per="key", uses=match)
files = csv(f"out/{run.id}/joined", columns={"id": "int64", "name": "string", "city": "string"})
written = wf.map("rows", joined, uses=rows, output=files)

wf.output("joined", written.output.uri)
