"""The shared objects of a workflow, read from the states that its run has committed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from treadle.orchestrator.plan.plan import OBJECTS, DataRef, LoopData, LoopNode, NodeData, Plan
from treadle.primitives.errors import UsageError
from treadle.primitives.objects.effects import state_of

from .stage_data import Incomplete, StageData, plan_of

if TYPE_CHECKING:
    from .environment import ClientEnvironment


class ReadObject(NamedTuple):
    """A copy of an object. Changes to it change nothing in the run."""

    after: str
    """The last stage whose calls it has; `0`: none."""
    value: Any
    """An instance of its class."""


def read_object(env: ClientEnvironment, run: str, name: str) -> ReadObject:
    """Return the latest state of an object. Blocking.

    Raises UsageError for an unknown object, Incomplete before its first state, and the errors of `StageData.parts`.
    """
    plan = plan_of(env.files(run))
    states = list(_states(plan, name))
    if not states:
        raise UsageError(f"the workflow has no object {name} that stages use", "See `objects` of the document.")
    for after, reference in reversed(states):
        try:
            ((state,),) = StageData(env, run, OBJECTS + name, (plan, reference)).parts()
        except Incomplete:
            continue
        return ReadObject(after, _loaded(name, state))
    raise Incomplete(f"object {name} has no state yet")


def _loaded(name: str, state: bytes) -> Any:
    try:
        return state_of(state)
    except (ImportError, AttributeError) as error:
        text = f"the class of object {name} cannot be imported here: {error}"
        raise UsageError(text, "Put the folder of its module on sys.path.") from error


def _states(plan: Plan, name: str) -> Iterator[tuple[str, DataRef]]:
    """The states in order: the first one, one after each stage that changes it, and one after each loop with such a
    stage.
    """
    node_id = f"{OBJECTS}{name}."
    for node in plan.graph.nodes:
        if isinstance(node, LoopNode) and OBJECTS + name in node.state:
            yield node.id, LoopData(node.id, OBJECTS + name)
        elif node.id.startswith(node_id):
            yield node.id.removeprefix(node_id), NodeData((node.id,))
