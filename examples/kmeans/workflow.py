"""kmeans.yaml in Python: the same document. `treadle run workflow.py -i points='data/points-*.npy'`."""

from kmeans import add_partials, as_rows, assign, new_centroids, plus_plus, to_array

from treadle.dsl import Workflow, csv, npy, run

wf = Workflow("kmeans")
points = wf.input("points", "uri", required=True, description="NPY files of shape (n, d)")
k = wf.input("k", int, default=8, minimum=1)
tol = wf.input("tol", float, default=1.0e-4)
iterations = wf.input("iterations", int, default=50, minimum=1, description="at most")

load = wf.map("load", npy(points, split="64MiB"), per="partition", uses=to_array)
seed = wf.reduce("seed", load, per="all", uses=plus_plus, with_={"k": k})
loaded = wf.barrier("loaded", load)

with wf.loop("lloyd", state={"centroids": seed}, max_iterations=iterations, on_exhausted="succeed") as lloyd:
    ship = lloyd.broadcast("ship", lloyd.state.centroids)
    sums = lloyd.map("assign", loaded, per="partition", uses=assign, with_={"centroids": ship})
    update = lloyd.reduce(
        "update",
        sums,
        per="all",
        combine=add_partials,
        fan_in=32,
        finish=new_centroids,
        with_={"old": ship},
        metrics={"shift": "number"},
    )
    lloyd.next(centroids=update)
    lloyd.until(update.metrics.shift < tol)

columns = {"centroid": "int64", "dimension": "int64", "value": "float64"}
files = csv(f"out/{run.id}/model", columns=columns)
model = wf.map("model", lloyd.state.centroids, uses=as_rows, flat=True, output=files)

wf.output("model", model.output.uri)
wf.output("iterations", lloyd.metrics.iterations)
