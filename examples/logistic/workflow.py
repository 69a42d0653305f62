"""logistic.yaml in Python: the same document. `treadle run workflow.py -i rows='data/rows-*.npy'`."""

from logistic import add, as_rows, descend, mean, to_array, zeros

from treadle.dsl import Workflow, csv, npy, run

wf = Workflow("logistic", seed=7)
about = "NPY files of shape (n, d + 1): d features and a label, 0 or 1"
rows = wf.input("rows", "uri", required=True, description=about)
about = "length of a step in the first epoch; it shrinks with the epoch"
rate = wf.input("rate", float, default=0.5, description=about)
batch = wf.input("batch", int, default=256, minimum=1, description="rows that a step looks at")
epochs = wf.input("epochs", int, default=20, minimum=1, description="at most")
tol = wf.input("tol", float, default=1.0e-3, description="largest change of a weight that ends the training")

load = wf.map("load", npy(rows), per="partition", uses=to_array)
start = wf.reduce("start", load, per="all", uses=zeros)

with wf.loop("train", state={"weights": start, "epoch": 1}, max_iterations=epochs, on_exhausted="succeed") as train:
    ship = train.broadcast("ship", train.state.weights)
    arguments = {"weights": ship, "rate": rate / train.state.epoch, "batch": batch}
    steps = train.map("descend", load, per="partition", uses=descend, with_=arguments)
    average = train.reduce(
        "average",
        steps,
        per="all",
        combine=add,
        finish=mean,
        with_={"old": ship},
        metrics={"loss": "number", "change": "number"},
    )
    train.next(weights=average, epoch=train.state.epoch + 1)
    train.until(average.metrics.change < tol)

columns = {"feature": "int64", "weight": "float64"}
files = csv(f"out/{run.id}/model", columns=columns)
model = wf.map("model", train.state.weights, uses=as_rows, flat=True, output=files)

wf.output("model", model.output.uri)
wf.output("epochs", train.metrics.iterations)
