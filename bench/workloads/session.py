"""treadle as a user runs it: a new environment on the embedded default, and a client that stays connected.

Temporal's server with its database on disk, the detached driver with a worker process for each processor, ledgers and
blocks in a store of files: everything in a run is durable.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from treadle.cli.view.datasets import records
from treadle.client.client import Runs
from treadle.client.environment import ClientEnvironment as Environment
from treadle.client.environment import silence_core
from treadle.client.garbage_collection import remove
from treadle.client.submission import Prepared, new_run_id, prepare
from treadle.dsl import Spec, Workflow
from treadle.dsl.validation.inputs import resolve_inputs
from treadle.orchestrator import embedded
from treadle.orchestrator.temporal.connect import connect
from treadle.orchestrator.temporal.temporal_runs import TemporalRuns
from treadle.primitives.stores.shared_memory import HostFolder


class Session:
    """`seconds`: the parts of the last run's time (prepared, done, read)."""

    def __init__(self, folder: Path, roots: Sequence[Path]) -> None:
        """`folder`: for the environment, files and relative paths; `roots`: folders of the user's modules."""
        self._environment = Environment(home=folder / "home")
        self._folder, self._roots = folder, roots
        self._runner = asyncio.Runner()
        self.seconds: dict[str, float] = {}

    def start(self) -> None:
        env = self._environment
        silence_core()
        env.ensure_driver()
        client = self._runner.run(connect(env.profile, env.home))
        self._runs = Runs(TemporalRuns(client), env.store, env.key, env.profile.queue)
        self._site = env.plan_site()

    def run(self, workflow: Workflow | Spec, inputs: Mapping[str, Any] | None = None) -> str:
        """Check, plan, bundle, submit, wait. Returns the run's id. Raises RuntimeError when it does not succeed."""
        began = time.perf_counter()
        prepared = self._prepared(workflow if isinstance(workflow, Spec) else workflow.spec(), inputs or {})
        ready = time.perf_counter()
        self._runner.run(self._done(prepared))
        self.seconds = {"prepared": ready - began, "done": time.perf_counter() - ready}
        return prepared.submission.run

    def run_all(self, specs: Sequence[Spec]) -> None:
        """Check, plan, bundle, submit all, and wait for all."""

        async def done() -> None:
            await asyncio.gather(*(self._done(self._prepared(spec, {})) for spec in specs))

        self._runner.run(done())

    def _prepared(self, spec: Spec, inputs: Mapping[str, Any]) -> Prepared:
        run, given = new_run_id(spec.name), resolve_inputs(spec, inputs)
        return prepare(spec, given, run=run, base=self._folder, roots=self._roots, captured={}, site=self._site)

    def variables(self) -> dict[str, str]:
        """The variables of a command on this environment."""
        return {**os.environ, "TREADLE_HOME": str(self._environment.home.path)}

    async def _done(self, prepared: Prepared) -> None:
        await self._runs.submit(prepared)
        end = await self._runs.end(prepared.submission.run)
        if end.state != "succeeded":
            raise RuntimeError(f"the run {end.state}: {end.failure}")

    def records(self, run: str, stage: str) -> list[Any]:
        """The values that `treadle result RUN --stage STAGE` prints."""
        began, modules = time.perf_counter(), dict(sys.modules)
        found = [json.loads("".join(pieces)) for pieces in records(self._environment, run, stage)]
        sys.modules.update(modules)  # the run's copy of the user's modules replaced the originals
        self.seconds["read"] = time.perf_counter() - began
        return found

    def forget(self, run: str) -> None:
        """Remove all that a run left in the store and in shared memory."""
        remove(self._environment.store, run)
        HostFolder(self._environment.home.host_root).delete_run(run)

    def stop(self) -> None:
        self._runner.close()
        embedded.down(self._environment.home)
        shutil.rmtree(self._environment.home.host_root, ignore_errors=True)
