"""Runs stages on demand: once in each iteration of the loops around them, when another stage needs them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from treadle.primitives.errors import UsageError
from treadle.primitives.functions import load
from treadle.primitives.result import json_value, stage_value
from treadle.primitives.stores.input_files import absolute_uri

from ..diagnostics.diagnostics import has_errors
from ..document.document import Document, InvalidDocument
from ..document.workflow_files import from_spec, linked
from ..document.workflow_files import load as load_document
from ..expressions import ExpressionError
from ..graph.graph import Node
from ..graph.objects import used_objects
from ..graph.requirements import all_needs, data_stages, dependencies, inner_stages
from ..graph.stages import all_stages
from ..model import BarrierStage, BroadcastStage, LoopStage, MapStage, ReduceStage, Spec, WorkflowStage
from ..templates import render, template_paths
from ..validation.inputs import resolve_inputs
from ..validation.subworkflows import given_inputs
from ..validation.validate import validate
from .calls import ReferenceFailure
from .loops import run_loop
from .run import ReferenceResult, ReferenceRun
from .scopes import FinishedStage, Frame
from .stages import Work

if TYPE_CHECKING:
    from ..builder.workflow import Workflow


def run_reference(
    workflow: Workflow | str | PathLike[str] | Spec,
    inputs: Mapping[str, Any] | None = None,
    functions: Callable[[str], Callable[..., Any]] | None = None,
    base: Path | None = None,
    *,
    secrets: Mapping[str, str] | None = None,
    run_id: str = "reference",
    started: str = "1970-01-01T00:00:00Z",
) -> ReferenceResult:
    """Return the result that the workflow has for these inputs, by definition.

    `workflow` is a Workflow, the path of a YAML file, or a valid Spec. `functions` returns the function of a reference
    `module:name`; by default the module is imported. Relative URIs are resolved against `base`, which defaults to the
    folder of the YAML file or to the current folder.

    Raises InvalidDocument and InvalidInputs as a run does, ReferenceFailure where a run would fail because of its
    functions or data, and UsageError for features without an exact meaning.
    """
    captured: Mapping[str, bytes] = {}
    if isinstance(workflow, str | PathLike):
        path = Path(workflow)
        spec, base = _checked(load_document(path)), base or path.absolute().parent
    elif isinstance(workflow, Spec):
        spec = workflow
    else:
        spec = _checked(from_spec(workflow.spec(), path=(base or Path()) / "workflow"))
        captured = workflow.captured
    env = {"inputs": resolve_inputs(spec, inputs or {}), "run": {"id": run_id, "startTime": started}}
    return Interpreter(spec, env, functions or partial(load, captured=captured), base, dict(secrets or {})).run()


def _checked(document: Document) -> Spec:
    found = validate(document)
    if has_errors(found):
        raise InvalidDocument(found, document.sources)
    return linked(document)


class Interpreter(ReferenceRun):
    """A run that executes stages on demand."""

    def run(self) -> ReferenceResult:
        frame = Frame()
        for name in self.spec.stages:
            self.stage(name, frame)
        try:
            self.result.outputs = render(self.spec.outputs, {**self.env(frame), "objects": self._values()})
        except ExpressionError as error:
            raise ReferenceFailure("outputs", None, error) from error
        return self.result

    # -- objects

    def _create(self, name: str) -> None:
        """Make the first state of an object, unless there is one."""
        declared = self.spec.objects[name]
        try:
            self.objects.create(name, self.functions(declared.function), self.fixed(declared.with_))
        except Exception as error:
            raise ReferenceFailure(f"objects.{name}", None, error) from error

    def _values(self) -> dict[str, Any]:
        named = {path[1] for path in template_paths(self.spec.outputs) if path[0] == "objects"}
        for name in sorted(named):
            self._create(name)
        return {name: json_value(f"objects.{name}", self.objects.value(name)) for name in named}

    def _prepare_objects(self, node: Node, frame: Frame) -> None:
        """Before a stage that uses objects, or a loop around one: everything that must be over, since it may change
        them."""
        inside = dict(all_stages({node.id: node.stage}))
        used = sorted({name for stage in inside.values() for name in used_objects(stage)})
        for name in used:
            self._create(name)
        around = self.graph.nodes[node.loops[-1]].stage if node.loops else self.spec
        siblings = around.stages if isinstance(around, LoopStage | Spec) else {}
        for name in all_needs(siblings, dependencies(node.stage)) - inside.keys() if used else ():
            self.stage(name, frame)

    # -- stages

    def stage(self, name: str, frame: Frame) -> FinishedStage | None:
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
        """Return whether data of a skipped stage is needed, also by a stage inside the loop, or `when` is false."""
        wanted = data_stages(node.stage)
        if isinstance(node.stage, LoopStage):
            wanted |= inner_stages(node.stage)[0]
        if any(self.stage(name, frame) is None for name in sorted(wanted) if not self._is_within(name, node)):
            return True
        when = node.stage.when
        return when is not None and not self.condition(when, self.env(frame), frame.prefix + node.id)

    def _is_within(self, name: str, loop: Node) -> bool:
        return loop.id in (name, *self.graph.nodes[name].loops)

    def _done(self, node: Node, frame: Frame) -> FinishedStage:
        path = frame.prefix + node.id
        self._prepare_objects(node, frame)
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

    def _run(self, node: Node, frame: Frame) -> FinishedStage:
        if isinstance(node.stage, LoopStage):
            return run_loop(self, node, node.stage, frame)
        if isinstance(node.stage, WorkflowStage):
            return self._child(node.id, node.stage, frame)
        work = Work(self, node, frame)
        match node.stage:
            case MapStage():
                return self._with_effects(work, work.map(node.stage))
            case ReduceStage():
                return self._with_effects(work, work.reduce(node.stage))
            case BroadcastStage():
                return work.broadcast(node.stage)
            case BarrierStage():
                return work.barrier(node.stage)
        return work.shuffle(node.stage)

    def _with_effects(self, work: Work, done: FinishedStage) -> FinishedStage:
        """The stage is over: its calls of objects run."""
        for effect in work.effects:
            try:
                self.objects.apply(effect)
            except Exception as error:
                raise ReferenceFailure(f"objects.{effect.object}", None, error) from error
        return done

    def _child(self, name: str, stage: WorkflowStage, frame: Frame) -> FinishedStage:
        """Run the sub-workflow: it means the same here as alone, with these inputs."""
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
        return FinishedStage(outputs=made.outputs)


def encode(stage: Any, done: FinishedStage, path: str) -> list[bytes]:
    """Return the output part of each partition."""
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
