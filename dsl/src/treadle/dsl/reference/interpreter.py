"""Stages on demand: whoever needs a stage runs it, once in each iteration of the loops around it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from treadle.primitives.errors import UsageError
from treadle.primitives.result import stage_value
from treadle.primitives.stores.input_files import absolute_uri

from ..expressions import ExpressionError
from ..graph.graph import Node
from ..graph.requirements import data_stages, inner_stages
from ..model import BarrierStage, BroadcastStage, LoopStage, MapStage, ReduceStage, Spec, WorkflowStage
from ..templates import render
from ..validation.subworkflows import given_inputs
from .calls import ReferenceFailure
from .loops import run_loop
from .run import ReferenceResult, Run
from .scopes import Done, Frame
from .stages import Work


def run_reference(
    spec: Spec,
    inputs: Mapping[str, Any],
    functions: Callable[[str], Callable[..., Any]],
    base: Path | None = None,
    *,
    secrets: Mapping[str, str] | None = None,
    run_id: str = "reference",
    started: str = "1970-01-01T00:00:00Z",
) -> ReferenceResult:
    """What the workflow means for these inputs.

    `spec` is valid; `functions` gives the function behind a reference; relative URIs count from `base`. Raises
    ReferenceFailure where a run would fail for its functions or data, UsageError for what has no exact meaning.
    """
    given = {name: inputs.get(name, declared.default) for name, declared in spec.inputs.items()}
    env = {"inputs": given, "run": {"id": run_id, "startTime": started}}
    return Interpreter(spec, env, functions, base, dict(secrets or {})).run()


class Interpreter(Run):
    """Whoever needs a stage runs it."""

    def run(self) -> ReferenceResult:
        frame = Frame()
        for name in self.spec.stages:
            self.stage(name, frame)
        try:
            self.result.outputs = render(self.spec.outputs, self.env(frame))
        except ExpressionError as error:
            raise ReferenceFailure("outputs", None, error) from error
        return self.result

    # -- stages

    def stage(self, name: str, frame: Frame) -> Done | None:
        node = self.graph.nodes[name]
        frame = frame.at(node.loops)
        if name not in frame.done:
            skipped = self._is_skipped(node, frame)
            frame.done[name] = None if skipped else self._done(node, frame)
            if skipped:
                self.result.skipped.add(frame.prefix + name)
                self.result.metrics[frame.prefix + name] = dict.fromkeys(getattr(node.stage, "metrics", {}))
        return frame.done[name]

    def _is_skipped(self, node: Node, frame: Frame) -> bool:
        """Data of a skipped stage is wanted, also by what is inside of a loop; or `when` is false."""
        wanted = data_stages(node.stage)
        if isinstance(node.stage, LoopStage):
            wanted |= inner_stages(node.stage)[0]
        if any(self.stage(name, frame) is None for name in sorted(wanted) if not self._is_within(name, node)):
            return True
        when = node.stage.when
        return when is not None and not self.condition(when, self.env(frame), frame.prefix + node.id)

    def _is_within(self, name: str, loop: Node) -> bool:
        return loop.id in (name, *self.graph.nodes[name].loops)

    def _done(self, node: Node, frame: Frame) -> Done:
        path = frame.prefix + node.id
        done = self._run(node, frame)
        if not isinstance(node.stage, LoopStage | WorkflowStage):
            self.result.datasets[path] = done.dataset.partitions
        self.result.metrics[path] = done.metrics
        if node.id in self.valued and done.dataset.partitions[0].value:
            done.value = Work(self, node, frame).once(lambda: stage_value(node.id, done.dataset.partitions[0].value[0]))
        output = getattr(node.stage, "output", None)
        if output is not None:
            done.uri = absolute_uri(self.fixed(output.uri), self.base)
            self.result.written_parts[node.id] = encode(node.stage, done, path)
        return done

    def _run(self, node: Node, frame: Frame) -> Done:
        if isinstance(node.stage, LoopStage):
            return run_loop(self, node, node.stage, frame)
        if isinstance(node.stage, WorkflowStage):
            return self._child(node.id, node.stage, frame)
        work = Work(self, node, frame)
        match node.stage:
            case MapStage():
                return work.map(node.stage)
            case ReduceStage():
                return work.reduce(node.stage)
            case BroadcastStage():
                return work.broadcast(node.stage)
            case BarrierStage():
                return work.barrier(node.stage)
        return work.shuffle(node.stage)

    def _child(self, name: str, stage: WorkflowStage, frame: Frame) -> Done:
        """A run of the other workflow: what it means alone, with these inputs, is what it means here."""
        assert isinstance(stage.uses, Spec), "files are read before anything runs"
        run = self.fixed_env["run"]
        try:
            inputs = given_inputs(stage.uses, render(stage.with_, self.env(frame)))
        except UsageError as error:
            raise ReferenceFailure(name, None, error) from error
        env = {"inputs": inputs, "run": {**run, "id": f"{run['id']}/{name}"}}
        try:
            made = Interpreter(stage.uses, env, self.functions, self.base, self.secrets).run()
        except ReferenceFailure as failure:
            raise ReferenceFailure(f"{name}/{failure.stage}", failure.partition, failure.error) from failure.error
        self.result.children[name] = made
        return Done(outputs=made.outputs)


def encode(stage: Any, done: Done, path: str) -> list[bytes]:
    """The output part of each partition."""
    from treadle.primitives.formats import WriteOptions, encode_part

    output = stage.output
    options = WriteOptions(output.format, tuple((output.columns or {}).items()), output.header, output.delimiter)
    parts = []
    for index, partition in enumerate(done.dataset.partitions):
        try:
            parts.append(b"".join(encode_part(partition.kind, partition.value, options)))
        except Exception as error:
            raise ReferenceFailure(path, index, error) from error
    return parts
