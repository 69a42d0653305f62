"""treadle: every workload as a workflow, through its Python builder and its client."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from harness.settings import SHARED_MEMORY
from sorters.treadle import EXAMPLE as TERASORT
from sorters.treadle import workflow as terasort

from treadle.dsl import Spec, Workflow, csv, npy, range_, text
from workloads import data
from workloads.data import jobs
from workloads.rivals.base import Base
from workloads.session import Session
from workloads.settings import DUCKDB, EACH, LIBRARIES, POLARS, PROJECT, RECORDS, Workload

_FILE = "1GiB"
"""The value of `split` that gives a partition for each file."""
_ARRAY = SHARED_MEMORY / f"treadle-workloads-{os.getpid()}.npy"


class Rival(Base):
    def start(self) -> None:
        _reach(LIBRARIES)
        sys.path.insert(0, str(TERASORT))
        self._session = Session(self.folder, [PROJECT, TERASORT])
        self._session.start()
        self._runs: list[str] = []

    def stop(self) -> None:
        self._session.stop()
        _ARRAY.unlink(missing_ok=True)

    def prepare(self, workload: Workload) -> None:
        if workload == "broadcast":
            self._array = data.array(self.sizes)

    def after(self) -> None:
        while self._runs:
            self._session.forget(self._runs.pop())

    def spent(self) -> dict[str, float]:
        return self._session.seconds

    def submit(self, *arguments: Any) -> str:
        """A run from submission to its end, like `Session.run`. `after` removes it."""
        self._runs.append(self._session.run(*arguments))
        return self._runs[-1]

    def submit_all(self, specs: Sequence[Spec]) -> None:
        """Runs side by side, until all have ended. They are kept."""
        self._session.run_all(specs)

    def command(self, *words: str) -> str:
        """The output of a command."""
        treadle = str(Path(sys.executable).with_name("treadle"))
        return subprocess.run(
            [treadle, *words], env=self._session.variables(), capture_output=True, check=True, text=True
        ).stdout

    def _answer(self, workflow: Workflow, stage: str) -> list[Any]:
        return self._session.records(self.submit(workflow), stage)

    # -- workloads

    def fan_out(self, variant: str, target: Path) -> Any:  # noqa: ARG002
        wf = Workflow("fanout")
        count = self.sizes.items
        wf.map("all", range_(count, partitions=count if variant == EACH else None), uses=jobs.same)
        return self._answer(wf, "all")

    def words(self, variant: str, target: Path) -> None:
        wf = Workflow("words")
        tables = variant in (POLARS, DUCKDB)
        files = text(f"{data.text(self.sizes)}/text-*", split=_FILE, table=tables)
        written = csv(str(target / "counts"), header=False, delimiter="\t")
        if tables:
            count, add = {POLARS: (jobs.polars_words, jobs.polars_sum), DUCKDB: (jobs.duckdb_words, jobs.duckdb_sum)}[
                variant
            ]
            counts = wf.map("count", files, per="partition", uses=count)
            groups = wf.shuffle("group", counts, by=["word"], partitions=self.sizes.word_files)
            wf.map("total", groups, per="partition", uses=add, output=written)
        else:
            if variant == RECORDS:
                pairs = wf.map("tokenize", files, uses=jobs.tokenize)
                groups = wf.shuffle("group", pairs, by="key", partitions=self.sizes.word_files, combine=jobs.add)
            else:
                pairs = wf.map("count", files, per="partition", whole=True, uses=jobs.count_words)
                groups = wf.shuffle("group", pairs, by="key", partitions=self.sizes.word_files)
            wf.reduce("total", groups, per="key", combine=jobs.add, output=written)
        self.submit(wf)

    def sort(self, variant: str, target: Path) -> None:  # noqa: ARG002
        source = f"{data.records(self.sizes)}/rec-*"
        self.submit(terasort("auto"), {"source": source, "target": str(target / "sorted"), "partitions": 8})

    def broadcast(self, variant: str, target: Path) -> Any:  # noqa: ARG002
        """The array is in this process. The workflow reads it from a file in shared memory, written here.

        The file is made once and then overwritten, like the floor does.
        """
        with _ARRAY.open("r+b" if _ARRAY.exists() else "wb") as file:
            np.lib.format.write_array(file, self._array)
        wf = Workflow("broadcast")
        shared = wf.broadcast("shared", npy(str(_ARRAY), split=_FILE), limit=_FILE)
        wf.map("total", self._indices(), uses=jobs.total, with_={"array": shared})
        return self._answer(wf, "total")

    def reduce(self, variant: str, target: Path) -> Any:  # noqa: ARG002
        wf = Workflow("sum")
        ramps = wf.map(
            "ramp", self._indices(), per="partition", uses=jobs.ramp_stage, with_={"length": self.sizes.array}
        )
        wf.reduce("facts", ramps, per="all", uses=jobs.facts_stage)
        (facts,) = self._answer(wf, "facts")
        return facts

    def shuffled(self, count: int) -> Any:
        wf = Workflow("shuffle")
        drawn = wf.map("draw", self._indices(), per="partition", uses=jobs.draw_stage, with_={"count": count})
        tasks = self.sizes.tasks
        by_range = {"type": "range", "boundaries": list(range(1, tasks))}
        parts = wf.shuffle("split", drawn, by=jobs.remainder, partitioner=by_range, partitions=tasks)
        wf.map("sum", parts, per="partition", uses=jobs.count_and_sum_stage)
        return self._answer(wf, "sum")

    def k_means(self, variant: str, target: Path) -> Any:  # noqa: ARG002
        wf = Workflow("kmeans")
        folder = data.points(self.sizes)
        load = wf.map("load", npy(f"{folder}/points-*", split=_FILE), per="partition", uses=jobs.resident)
        loaded = wf.barrier("loaded", load)
        start = wf.reduce("start", npy(f"{folder}/start.npy"), per="all", uses=jobs.only)
        with wf.loop(
            "lloyd", state={"centroids": start}, max_iterations=self.sizes.iterations, on_exhausted="succeed"
        ) as lloyd:
            old = lloyd.broadcast("old", lloyd.state.centroids)
            sums = lloyd.map("sums", loaded, per="partition", uses=jobs.nearest, with_={"centroids": old})
            update = lloyd.reduce(
                "update", sums, per="all", combine=jobs.add_partials, finish=jobs.moved, with_={"old": old}
            )
            lloyd.next(centroids=update)
        wf.map("end", lloyd.state.centroids, uses=jobs.same)
        (centroids,) = self._answer(wf, "end")
        return centroids

    def pipeline(self, variant: str, target: Path) -> Any:  # noqa: ARG002
        return self.chain(self.sizes.stages)

    def chain(self, stages: int) -> int:
        """A chain of stages with a barrier after each. Returns the number of finished tasks."""
        wf = Workflow("pipeline")
        done = wf.map("stage0", range_(self.sizes.width, partitions=self.sizes.width), uses=jobs.same)
        for index in range(1, stages):
            done = wf.map(f"stage{index}", wf.barrier(f"after{index}", done), uses=jobs.same)
        return len(self._answer(wf, f"stage{stages - 1}")) * stages

    def _indices(self) -> Any:
        return range_(self.sizes.tasks, partitions=self.sizes.tasks)


def _reach(folder: Path) -> None:
    """Make the user's libraries importable here and in the worker processes started from here."""
    sys.path.append(str(folder))
    known = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [known, str(folder)]))
