"""Workflows in Python: the same document as in YAML, made by calls.

wf = Workflow("wordcount")
corpus = wf.input("corpus", "uri", default="books/*.txt")
words = wf.map("tokenize", text(corpus), uses=tokenize, flat=True)
groups = wf.shuffle("group", words, by="key", combine=add)
counts = wf.reduce("count", groups, per="key", combine=add, output=parquet(expr("out/{run.id}")))
wf.output("counts", counts.output.uri)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, Self, Unpack

from pydantic import TypeAdapter

from treadle.primitives.errors import UsageError

from ..expressions import Path
from ..model import API_VERSION, Settings, Spec, Stage
from ..model import Input as InputModel
from ..normalise import as_written
from ..object_model import Object as ObjectModel
from ..triggers import Trigger
from .conversion import boundaries, condition, data, function, is_data, state, template, validated
from .formats import Files, LiteralData, given
from .handles import ChildHandle, Condition, DataValue, NamedValues, ObjectHandle, Scalar, StageHandle, ValueHandle
from .running import WorkflowRun, client
from .settings import StageSettings
from .triggers import TriggerSource

Function = Callable[..., Any] | str
"""A callable, or `module:name`."""
Objects = Sequence[ObjectHandle | str] | Mapping[str, Literal["merge", "read"]]
Data = StageHandle | DataValue | Files | LiteralData
_INPUT_TYPES = {str: "string", bool: "boolean", int: "integer", float: "number", list: "list"}
_UNSET: Any = object()
_stage: TypeAdapter[Any] = TypeAdapter(Stage)
_trigger: TypeAdapter[Any] = TypeAdapter(Trigger)


class Body:
    """A container of stages: the workflow, or a loop. Its methods raise UsageError for invalid arguments."""

    def __init__(self, workflow: Workflow) -> None:
        self._workflow = workflow
        self._stages: dict[str, Any] = {}

    def map(
        self,
        id: str,
        input: Data,
        *,
        uses: Function,
        per: Literal["record", "partition"] | None = None,
        flat: bool | None = None,
        whole: bool | None = None,
        with_: Mapping[str, Any] | None = None,
        batch: Mapping[str, Any] | None = None,
        metrics: Mapping[str, Literal["sum", "min", "max"]] | None = None,
        tolerated_failures: int | str | None = None,
        failed_items: str | ValueHandle | None = None,
        gang: int | None = None,
        objects: Objects | None = None,
        **settings: Unpack[StageSettings],
    ) -> StageHandle:
        """Call `uses` for every record, or once for every partition; with `gang` exactly this many partitions run
        together. `objects`: the shared objects of the function, or `{name: "read"}`.
        """
        failed = None if failed_items is None else {"uri": failed_items}
        shape = given(per=per, flat=flat, whole=whole, with_=with_, batch=batch, metrics=metrics, gang=gang)
        failures = given(tolerated_failures=tolerated_failures, failed_items=failed, objects=objects)
        return self._add(id, "map", settings, input=input, uses=uses, **shape, **failures)

    def shuffle(
        self,
        id: str,
        input: Data | list[Data],
        *,
        by: Function | list[str],
        partitions: int | ValueHandle | None = None,
        partitioner: Literal["hash", "range"] | Mapping[str, Any] | None = None,
        sort: bool | None = None,
        combine: Function | None = None,
        **settings: Unpack[StageSettings],
    ) -> StageHandle:
        """Bring records with equal or adjacent keys together."""
        shape = given(partitions=partitions, partitioner=partitioner, sort=sort, combine=combine)
        return self._add(id, "shuffle", settings, input=input, by=by, **shape)

    def reduce(
        self,
        id: str,
        input: Data,
        *,
        per: Literal["key", "partition", "all"],
        uses: Function | None = None,
        combine: Function | None = None,
        initial: Any = _UNSET,
        finish: Function | None = None,
        fan_in: int | ValueHandle | None = None,
        with_: Mapping[str, Any] | None = None,
        metrics: Mapping[str, str] | None = None,
        objects: Objects | None = None,
        **settings: Unpack[StageSettings],
    ) -> StageHandle:
        """Fold values per key, per partition, or all of them."""
        shape = given(uses=uses, combine=combine, finish=finish, fan_in=fan_in, with_=with_, metrics=metrics)
        shape |= given(objects=objects)
        if initial is not _UNSET:
            shape["initial"] = initial
        return self._add(id, "reduce", settings, input=input, per=per, **shape)

    def broadcast(
        self, id: str, input: Data, *, limit: str | None = None, **settings: Unpack[StageSettings]
    ) -> StageHandle:
        """Turn a whole dataset into one read-only value: pass the handle in `with_`."""
        return self._add(id, "broadcast", settings, input=input, **given(limit=limit))

    def barrier(
        self, id: str, input: StageHandle, *, quorum: str | None = None, **settings: Unpack[StageSettings]
    ) -> StageHandle:
        """Pass the input on once it is committed."""
        return self._add(id, "barrier", settings, input=input, **given(quorum=quorum))

    def loop(
        self,
        id: str,
        *,
        state: Mapping[str, Any],
        max_iterations: int | ValueHandle,
        on_exhausted: Literal["fail", "succeed"] | None = None,
        **settings: Unpack[StageSettings],
    ) -> Loop:
        """Repeat the stages added inside `with wf.loop(...) as it:`."""
        fields = {"state": state, "max_iterations": max_iterations, **given(on_exhausted=on_exhausted), **settings}
        return Loop(self, id, fields)

    def workflow(
        self,
        id: str,
        *,
        uses: str | Workflow | Mapping[str, Any],
        with_: Mapping[str, Any] | None = None,
        **settings: Unpack[StageSettings],
    ) -> ChildHandle:
        """Run another workflow as a child: a YAML file, relative to this one, or a `Workflow`."""
        self._workflow.claim(id)
        stage = self._workflow.stage_fields({**given(with_=with_), **settings})
        self._put(id, {"type": "workflow", "uses": self._workflow.inside(uses), **stage})
        return ChildHandle(id)

    def _add(self, id: str, type: str, settings: Mapping[str, Any], **fields: Any) -> StageHandle:
        self._workflow.claim(id)
        stage = self._workflow.stage_fields({**fields, **settings})
        self._put(id, {"type": type, **stage})
        return StageHandle(id)

    def _put(self, id: str, stage: dict[str, Any]) -> None:
        self._open()
        validated(_stage.validate_python, stage, f"stage {id!r}")
        self._stages[id] = stage

    def _open(self) -> None:
        """Raise UsageError when no further stage may be added."""


class Loop(Body, StageHandle):
    """A loop under construction: its stages, its `state`, then `next` and `until`. Afterwards, a stage."""

    def __init__(self, outer: Body, id: str, fields: dict[str, Any]) -> None:
        Body.__init__(self, outer._workflow)
        StageHandle.__init__(self, id)
        self._workflow.claim(id)
        self._outer, self._fields = outer, fields
        self._next: dict[str, Any] = {}
        self._until: Any = None
        self._phase = "new"
        self.state = NamedValues(self._state)

    def _state(self, name: str) -> DataValue:
        """Inside the loop, the state of the current iteration; after it, the final state."""
        given_state: Mapping[str, Any] = self._fields["state"]
        if name not in given_state:
            known = ", ".join(given_state)
            raise UsageError(f"the loop {self.id!r} has no state {name!r}", f"Its state: {known}.")
        if self._phase == "open":
            return DataValue(("state", name), f"state.{name}", is_data(given_state[name]))
        return DataValue(("stages", self.id, "state", name), f"{self.id}.state.{name}", is_data(given_state[name]))

    def next(self, /, **values: Any) -> None:
        """Set the state of the next iteration; absent names keep their value."""
        self._open()
        self._next.update(values)

    def until(self, condition: Condition) -> None:
        """Set the condition that ends the loop, evaluated after the body with the new state."""
        self._open()
        self._until = condition

    def _open(self) -> None:
        if self._phase != "open":
            raise UsageError(f"the loop {self.id!r} is {self._phase}", "Add its stages inside `with ... as it:`.")

    def __enter__(self) -> Self:
        if self._phase != "new":
            raise UsageError(f"the loop {self.id!r} was already built", "Make another loop.")
        self._phase = "open"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._phase = "closed"
        if kind is None:
            self._outer._put(self.id, {"type": "loop", **self._built()})

    def _built(self) -> dict[str, Any]:
        fields = {name: value for name, value in self._fields.items() if name != "state"}
        built = {
            "state": {name: state(value) for name, value in self._fields["state"].items()},
            **self._workflow.stage_fields(fields),
            "stages": self._stages,
        }
        if self._until is not None:
            built["until"] = condition(self._until)
        if self._next:
            built["next"] = {name: state(value) for name, value in self._next.items()}
        return built


class Workflow(Body):
    """A workflow under construction. Its methods raise UsageError for invalid arguments."""

    def __init__(
        self,
        name: str,
        *,
        description: str | None = None,
        labels: Mapping[str, str] | None = None,
        seed: int | None = None,
        defaults: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(self)
        self.captured: dict[str, bytes] = {}
        """Functions taken by value (lambdas, closures, functions of `__main__`): maps a reference to the pickle."""
        self.is_inside = False
        """It is part of another workflow."""
        if defaults is not None:
            validated(Settings.model_validate, template(defaults), "defaults")
        self._head = {"name": name, **given(description=description, labels=labels, seed=seed)}
        self._head |= given(defaults=None if defaults is None else template(defaults))
        self._ids: set[str] = set()
        self._inputs: dict[str, Any] = {}
        self._secrets: list[str] = []
        self._triggers: dict[str, Any] = {}
        self._outputs: dict[str, Any] = {}
        self._objects: dict[str, Any] = {}

    def input(
        self,
        name: str,
        type: type | str,
        *,
        required: bool | None = None,
        default: Any = None,
        description: str | None = None,
        minimum: float | None = None,
        maximum: float | None = None,
        enum: list[Any] | None = None,
    ) -> DataValue:
        """Declare a value given when a run is submitted."""
        kind = _INPUT_TYPES.get(type, type) if not isinstance(type, str) else type
        bounds = given(minimum=minimum, maximum=maximum, enum=enum, required=required)
        declared = {"type": kind, **given(default=default, description=description), **bounds}
        validated(InputModel.model_validate, declared, f"input {name!r}")
        self._inputs[name] = declared
        return DataValue(("inputs", name), f"inputs.{name}", kind in ("dataset", "list"))

    def secret(self, name: str) -> ValueHandle:
        """Declare a secret: legal only as a whole value of `with_`."""
        self._secrets.append(name)
        return Scalar(Path(("secrets", name)))

    def object(self, name: str, kind: type | str, /, **with_: Any) -> ObjectHandle:
        """Declare a shared object: a class marked with `@shared`, `"module:Class"`, or a type such as `"counter"`.

        `with_` are the arguments of the class for the first state.
        """
        is_type = isinstance(kind, str) and ":" not in kind
        given_kind = {"type": kind} if is_type else {"uses": function(kind, self.captured)}
        declared = {**given_kind, **given(with_=template(with_) or None)}
        validated(ObjectModel.model_validate, declared, f"object {name!r}")
        self._objects[name] = declared
        return ObjectHandle(name)

    def trigger(
        self, id: str, source: TriggerSource, *, with_: Mapping[str, Any] | None = None, description: str | None = None
    ) -> None:
        """Start runs from events, once the workflow is deployed; `with_` maps events to inputs."""
        if id in self._triggers:
            raise UsageError(f"there is already a trigger {id!r}", "Give every trigger its own id.")
        declared = {**source.options, **given(with_=with_ and template(with_), description=description)}
        validated(_trigger.validate_python, declared, f"trigger {id!r}")
        self._triggers[id] = declared

    def output(self, name: str, value: Any) -> None:
        """Declare a result of the run."""
        self._outputs[name] = template(value)

    def spec(self) -> Spec:
        """Return the document. Raises UsageError for values that no document may have."""
        parts = {"inputs": self._inputs, "secrets": self._secrets, "objects": self._objects}
        parts |= {"triggers": self._triggers, "outputs": self._outputs}
        document = {"api_version": API_VERSION, **self._head, "stages": self._stages}
        document |= {name: value for name, value in parts.items() if value}
        return validated(Spec.model_validate, document, f"workflow {self._head['name']!r}")

    def to_yaml(self) -> str:
        """Return the document as YAML. Raises UsageError when one of its functions was captured by value."""
        if self.captured:
            raise UsageError(
                f"{len(self.captured)} functions of this workflow have no name that YAML could hold",
                "Move lambdas, closures and functions of __main__ into a module that can be imported.",
            )
        from ..document.writing import to_yaml

        return to_yaml(self.spec())

    def run(
        self, inputs: Mapping[str, Any] | None = None, *, id: str | None = None, executor: str | None = None
    ) -> WorkflowRun:
        """Run the workflow and wait for its end: `treadle.client.Client.run`. Raises UsageError without a client."""
        started: WorkflowRun = client().run(self, inputs, id=id, executor=executor)
        return started

    def submit(
        self, inputs: Mapping[str, Any] | None = None, *, id: str | None = None, executor: str | None = None
    ) -> WorkflowRun:
        """Start the workflow: `treadle.client.Client.submit`. Raises UsageError without a client."""
        started: WorkflowRun = client().submit(self, inputs, id=id, executor=executor)
        return started

    def _repr_html_(self) -> str:
        """The graph of the stages, for notebooks."""
        from ..graph.drawing import html

        return html(self.spec())

    # -- used by Body

    def inside(self, other: str | Workflow | Mapping[str, Any]) -> Any:
        """Return a sub-workflow as a value of `uses`; its captured functions travel with this workflow."""
        if not isinstance(other, Workflow):
            return other
        self.captured |= other.captured
        other.is_inside = True
        return as_written(other.spec())

    def claim(self, id: str) -> None:
        """Record a stage's id. Raises UsageError for a duplicate: ids are unique across nesting."""
        if id in self._ids:
            raise UsageError(f"there is already a stage {id!r}", "Give every stage its own id.")
        self._ids.add(id)

    def stage_fields(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Return the keys of a stage in the model's form."""
        return {name: self._field(name, value) for name, value in fields.items()}

    def _field(self, name: str, value: Any) -> Any:
        if name in ("uses", "combine", "finish", "by"):
            return function(value, self.captured)
        match name:
            case "input":
                return data(value)
            case "needs":
                return [data(item) for item in value]
            case "when":
                return condition(value)
            case "output":
                return template(value.options) if isinstance(value, Files) else value
            case "partitioner":
                return boundaries(value)
            case "initial":
                return value
            case "objects" if not isinstance(value, Mapping):
                return [one.name if isinstance(one, ObjectHandle) else one for one in value]
        return template(value)
