"""examples/terasort as a run of the whole engine (Temporal server, driver, ledger, local processes), without its check.

Measured from the submission to the end of the run, with server and driver running, as for the others.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import threading
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from harness.settings import BENCH
from harness.tera import FILES

from treadle.client.submission import new_run_id, prepare
from treadle.client.testing.service import service
from treadle.dsl.document.workflow_files import load
from treadle.dsl.model import Spec
from treadle.dsl.validation.inputs import resolve_inputs
from treadle.orchestrator.environment.home import Home
from treadle.orchestrator.temporal.activities import plan_site
from treadle.primitives.testing.s3 import seaweedfs

EXAMPLE = BENCH.parent / "examples" / "terasort"
_SECONDS = 120.0


def workflow(exchange: str) -> Spec:
    """The example's sort without its checking stages, with a task for each file as in the other sorters."""
    document = load(EXAMPLE / "terasort.yaml").require().model_dump(mode="json", by_alias=True, exclude_unset=True)
    for stage in ("summaries", "check"):
        del document["stages"][stage]
    document["outputs"] = {"sorted": document["outputs"]["sorted"]}
    document["defaults"]["exchange"] = exchange
    for stage in ("sample", "sorted"):
        document["stages"][stage]["input"]["split"] = "1GiB"
    return Spec.model_validate(document, by_alias=True, by_name=False)


class Sorter:
    exchange = "storage"

    def start(self, folder: Path) -> None:
        sys.path.insert(0, str(EXAMPLE))
        self._folder, self._exit = folder, AsyncExitStack()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.prepare()
        self._home = Home(folder / "home")
        self._service = self._do(self._exit.enter_async_context(service(self._home, os.cpu_count() or 1)))

    def prepare(self) -> None:
        """Start the store's server, if it needs one."""

    def sort(self, files: list[str], target: Path) -> None:
        self._do(self._sort(f"{Path(files[0]).parent}/rec-*", str(target)))

    async def _sort(self, source: str, target: str) -> None:
        spec, run, site = workflow(self.exchange), new_run_id("terasort"), self._service.site
        inputs = resolve_inputs(spec, {"source": source, "target": target, "partitions": FILES})
        prepared = prepare(
            spec,
            inputs,
            run=run,
            base=self._folder,
            roots=[EXAMPLE],
            captured={},
            site=plan_site(site),
        )
        await self._service.runs.submit(prepared)
        end = await self._service.runs.end(run)
        if end.state != "succeeded":
            raise RuntimeError(f"the run {end.state}: {end.failure}")

    def stop(self) -> None:
        if hasattr(self, "_loop"):
            self._do(self._exit.aclose())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(10)
            shutil.rmtree(self._home.host_root, ignore_errors=True)

    def _do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_SECONDS)


class Direct(Sorter):
    exchange = "direct"


class StorageFile(Sorter):
    """The store is a folder of this machine."""


class StorageS3(Sorter):
    """The store is on SeaweedFS. Input and output stay files."""

    def prepare(self) -> None:
        endpoint = self._exit.enter_context(seaweedfs())
        os.environ.update(endpoint.environment)
        os.environ["TREADLE_STORE"] = "s3://treadle/bench"
