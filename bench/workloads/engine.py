"""treadle as an engine of the harness whose engines are modules `engines/NAME_engine.py` with a class `ENGINE`.

In a copy of that harness: link this file to `engines/ours_engine.py`, let `peers.py` have the line

    "ours": {"env": "ours", "runs": {"w1": ["10k", "10k-each"], "w2": ["python"], "w3": ["numpy"], "w4": ["-"],
                                     "w5": ["-"], "w6": ["1m", "10m"], "w7": ["numpy"], "w8": ["driver"]}},

and set BENCH_PYTHON_OURS to the interpreter of the project's environment. The functions are the harness's own
(`tasks.py`), through the adapters of `bench/workloads/adapted`.
"""
# ruff: noqa: E402  # the path comes first

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

_WORKLOADS = Path(__file__).resolve().parent
_ADAPTED = _WORKLOADS / "adapted"
sys.path += [str(_WORKLOADS.parent), str(_ADAPTED)]
import adapters  # in _ADAPTED
import numpy as np
import settings  # type: ignore[import-not-found]  # of the harness
import tasks  # type: ignore[import-not-found]  # of the harness
from engines import Engine  # type: ignore[import-not-found]  # of the harness

from treadle.dsl import Workflow, fixed, items, npy, range_
from workloads.session import Session

_FILE = "1GiB"


class Treadle(Engine):  # type: ignore[misc]
    def start(self, workload: str, variant: str) -> None:  # noqa: ARG002
        self._folder = settings.BENCH_DIR / "tmp" / f"treadle-{os.getpid()}"
        self._folder.mkdir(parents=True)
        # Only the modules that the functions need: the others of the harness do not belong to the user's project.
        project = self._folder / "project"
        project.mkdir()
        for module in (tasks,):
            (project / Path(module.__file__).name).write_bytes(Path(module.__file__).read_bytes())
        self._session = Session(self._folder, [project, _ADAPTED])
        self._session.start()
        self._run = ""

    def prepare(self, workload: str, variant: str) -> None:  # noqa: ARG002
        if workload == "w4":
            self.array = np.random.default_rng(4).random(settings.W4_N)

    def after_run(self, workload: str, variant: str) -> None:  # noqa: ARG002
        self._session.forget(self._run)

    def stop(self) -> None:
        self._session.stop()

    def _records(self, workflow: Workflow, stage: str) -> list[Any]:
        self._run = self._session.run(workflow)
        return self._session.records(self._run, stage)

    # -- workloads

    def w1(self, variant: str, out: str) -> Any:  # noqa: ARG002
        count = {"1k": 1000, "10k": 10_000}[variant.partition("-")[0]]
        wf = Workflow("w1")
        wf.map("all", range_(count, partitions=count if variant.endswith("each") else None), uses=tasks.identity)
        return self._records(wf, "all")

    def w2(self, variant: str, out: str) -> None:  # noqa: ARG002
        wf = Workflow("w2")
        files = sorted(map(str, (settings.DATA / "words").glob("text-*")))
        parts = settings.W2_R
        counts = wf.map("count", items(files, partitions=len(files)), uses=adapters.word_parts, with_={"parts": parts})
        by_part = {"type": "range", "boundaries": list(range(1, parts))}
        groups = wf.shuffle("group", counts, by="key", partitioner=by_part, partitions=parts)
        wf.map("write", groups, per="partition", uses=adapters.write_words, with_={"folder": out})
        self._records(wf, "write")

    def w3(self, variant: str, out: str) -> None:  # noqa: ARG002
        wf = Workflow("w3")
        records = fixed(f"{settings.DATA}/tera/rec-*", record_bytes=settings.W3_REC, split=_FILE)
        parts = settings.W3_FILES
        samples = wf.map("sample", records, per="partition", uses=adapters.sample)
        bounds = wf.reduce("bounds", samples, per="all", uses=adapters.bounds, with_={"parts": parts})
        cuts = wf.broadcast("cuts", bounds)
        by_range = {"type": "range", "boundaries": cuts}
        ranges = wf.shuffle("ranges", records, by=adapters.key, partitioner=by_range, partitions=parts)
        wf.map("write", ranges, per="partition", uses=adapters.write_records, with_={"folder": out})
        self._records(wf, "write")

    def w4(self, variant: str, out: str) -> Any:  # noqa: ARG002
        file = Path("/dev/shm") / f"treadle-engine-{os.getpid()}.npy"
        try:
            np.save(file, self.array)
            wf = Workflow("w4")
            shared = wf.broadcast("shared", npy(str(file), split=_FILE), limit=_FILE)
            count = settings.W4_TASKS
            wf.map("sum", range_(count, partitions=count), uses=adapters.total, with_={"array": shared})
            return self._records(wf, "sum")
        finally:
            file.unlink(missing_ok=True)

    def w5(self, variant: str, out: str) -> Any:  # noqa: ARG002
        wf = Workflow("w5")
        count = settings.W5_TASKS
        indices = range_(count, partitions=count)
        made = wf.map("make", indices, per="partition", uses=adapters.make, with_={"length": settings.W5_N})
        wf.reduce("sum", made, per="all", uses=adapters.add_and_check)
        return self._records(wf, "sum")[0]

    def w6(self, variant: str, out: str) -> Any:  # noqa: ARG002
        wf = Workflow("w6")
        count, length = settings.W6_TASKS, settings.W6_SIZES[variant]
        made = wf.map(
            "make", range_(count, partitions=count), per="partition", uses=adapters.draw, with_={"length": length}
        )
        by_range = {"type": "range", "boundaries": list(range(1, count))}
        split = wf.shuffle("split", made, by=adapters.remainder, partitioner=by_range, partitions=count)
        wf.map("sum", split, per="partition", uses=tasks.w6_reduce)
        return self._records(wf, "sum")

    def w7(self, variant: str, out: str) -> Any:  # noqa: ARG002
        wf = Workflow("w7")
        folder = settings.DATA / "kmeans"
        load = wf.map("load", npy(f"{folder}/part-*.npy", split=_FILE), per="partition", uses=adapters.resident)
        loaded = wf.barrier("loaded", load)
        start = wf.reduce("start", npy(f"{folder}/init.npy"), per="all", uses=adapters.only)
        with wf.loop(
            "lloyd", state={"centroids": start}, max_iterations=settings.W7_ITERS, on_exhausted="succeed"
        ) as lloyd:
            old = lloyd.broadcast("old", lloyd.state.centroids)
            partials = lloyd.map("sums", loaded, per="partition", uses=adapters.partial, with_={"c": old})
            update = lloyd.reduce("update", partials, per="all", uses=adapters.update, with_={"c": old})
            lloyd.next(centroids=update)
        wf.map("end", lloyd.state.centroids, uses=tasks.identity)
        return np.array(self._records(wf, "end")[0])

    def w8(self, variant: str, out: str) -> Any:  # noqa: ARG002
        wf = Workflow("w8")
        done = wf.map("stage0", range_(settings.W8_WIDTH, partitions=settings.W8_WIDTH), uses=tasks.identity)
        for index in range(1, settings.W8_STAGES):
            done = wf.map(f"stage{index}", wf.barrier(f"after{index}", done), uses=tasks.identity)
        return len(self._records(wf, f"stage{settings.W8_STAGES - 1}")) * settings.W8_STAGES


ENGINE = Treadle
