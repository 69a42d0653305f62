"""The dataset of a stage, read from the blocks that its run has committed."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

from treadle.orchestrator.plan.plan import Child, DataRef, Plan, Segment
from treadle.orchestrator.run_store.run_files import LoopResult, Manifest
from treadle.primitives.blocks import Blocks
from treadle.primitives.encoding.codec import concat
from treadle.primitives.encoding.references import Kind, Slice
from treadle.primitives.errors import MissingError, UsageError
from treadle.primitives.lazy_import import pyarrow as late_pyarrow
from treadle.primitives.stores.shared_memory import HostFolder

from .attempt_logs import nodes_of

if TYPE_CHECKING:
    import numpy
    import pyarrow

    from treadle.orchestrator.run_store.run_files import RunFiles

    from .environment import ClientEnvironment


class Incomplete(UsageError):
    """The stage is not finished yet."""


class StageData:
    """The records of one stage in order. Raises UsageError for a stage without data, Incomplete. Blocking."""

    def __init__(self, env: ClientEnvironment, run: str, stage: str, data: tuple[Plan, DataRef] | None = None) -> None:
        """`data`: the plan, and a reference to data in it that is not a stage's; `stage` is its name in errors."""
        files = env.files(run)
        plan, reference = data or _planned(files, stage)
        self.stage = stage
        self._slices = _slices(files, plan, reference, stage)
        self._blocks = Blocks(files.store, run, HostFolder(env.home.host_root))

    @cached_property
    def kind(self) -> Kind:
        """The kind of the partitions: lists of Python objects, Arrow tables, or NumPy arrays."""
        return self._slices[0].kind if self._slices else "objects"

    def parts(self) -> Iterator[Any]:
        """The values of the blocks in order, each of the dataset's kind."""
        try:
            yield from map(self._blocks.get, self._slices)
        except MissingError as error:
            hint = "Shared memory is given back once a run has succeeded: give the stage `durability: segment`."
            raise UsageError(f"the data of {self.stage} is not kept: {error.message}", hint) from error

    def records(self) -> Iterator[Any]:
        """Rows of a table as dictionaries, rows of an array, or the objects that the stage made."""
        for part in self.parts():
            yield from self.rows(part)

    def rows(self, part: Any) -> Iterator[Any]:
        """The records of one block."""
        if self.kind != "table":
            return iter(part)
        return (row for batch in part.to_batches(max_chunksize=1024) for row in batch.to_pylist())

    def table(self) -> pyarrow.Table:
        """An Arrow table: of tables, or of records that are dictionaries. Raises UsageError for other data."""
        if self.kind == "table":
            return concat("table", list(self.parts()))
        records = list(self.records())
        if not all(isinstance(record, dict) for record in records):
            raise self._other("an Arrow table", "dictionaries")
        return late_pyarrow("a result as a table").Table.from_pylist(records)

    def array(self) -> numpy.ndarray[Any, Any]:
        """A NumPy array: the rows of arrays, or of records that are numbers or arrays of one shape. Raises UsageError
        for other data."""
        import numpy as np

        if self.kind == "array":
            found: numpy.ndarray[Any, Any] = concat("array", list(self.parts()))
            return found
        records = list(self.records())
        try:
            found = np.array(records)
        except ValueError as error:
            raise self._other("a NumPy array", "numbers, or arrays of one shape") from error
        if found.dtype.kind not in "biufc":
            raise self._other("a NumPy array", "numbers, or arrays of one shape")
        return found

    def _other(self, wanted: str, needed: str) -> UsageError:
        return UsageError(f"the records of {self.stage} do not make {wanted}", f"They must be {needed}; see records().")


def plan_of(files: RunFiles) -> Plan:
    """Return the plan of a run. Raises Incomplete before there is one."""
    plan = files.find(Plan, "plan")
    if plan is None:
        raise Incomplete(f"run {files.run} has not begun yet")
    return plan


def _planned(files: RunFiles, stage: str) -> tuple[Plan, DataRef]:
    plan = plan_of(files)
    return plan, _reference(plan, stage)


def _reference(plan: Plan, stage: str) -> DataRef:
    reference = plan.datasets.get(stage)
    if reference is not None:
        return reference
    known = f"Stages with data: {', '.join(sorted(plan.datasets)) or 'none'}."
    if not nodes_of(plan, stage):
        raise UsageError(f"the workflow has no stage {stage}", known)
    raise UsageError(f"{stage} leaves no data of its own: {_reason(plan, stage)}", known)


def _reason(plan: Plan, stage: str) -> str:
    match next((node for node in plan.graph.nodes if stage in (*node.stages, node.id)), None):
        case Segment(id=node):
            return f"it runs within {node}"
        case Child():
            return "it is a run of its own"
    return "of a loop the last state is kept, for the stages that read it"


def _slices(files: RunFiles, plan: Plan, reference: DataRef, stage: str) -> list[Slice]:
    from treadle.orchestrator.dispatcher.tasks.dataset_scope import Scope, loop_chains, partition_inputs

    @cache
    def manifest(segment: str) -> Manifest:
        found = files.manifest(segment)
        if found is None:
            raise Incomplete(f"{stage} is not complete")
        return found

    def loop(name: str) -> LoopResult:
        found = files.find(LoopResult, f"segments/{name}/result")
        if found is None:
            raise Incomplete(f"{stage} is not complete")
        return found

    data = Scope(loop_chains(plan.graph)).data(reference, loop)
    outcomes = [outcome for segment in data.segments for outcome in manifest(segment).outcomes]
    uri = plan.graph.outputs.get(stage)
    if uri and outcomes and all(outcome.block is None for outcome in outcomes):
        raise UsageError(f"{stage} keeps no data in the run", f"It was written to {uri}")
    inputs = partition_inputs(data, manifest)
    return [one for partition in inputs for row in partition.inputs for one in row]
