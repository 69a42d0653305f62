"""The states of shared objects between stages."""

from __future__ import annotations

from treadle.primitives.result import json_value

from ..program import ObjectState
from .attempt_state import Attempt
from .record_flow import Flow, objects, records


def object_state(op: ObjectState, flow: Flow, attempt: Attempt) -> Flow:
    """The next state as one record; the partition holds (stage, effect), in the order in which they apply."""
    from treadle.primitives.objects.effects import new_state, value_of, with_effects

    try:
        if op.create is not None:
            keywords = {name: attempt.argument(arg) for name, arg in op.create.args.items()}
            state = new_state(attempt.function(op.create.function), keywords)
        else:
            assert op.state is not None
            effects = (effect for stage, effect in records(flow) if stage == op.source)
            state = with_effects(attempt.argument(op.state), op.object, effects)
        if op.value:
            attempt.values[op.stage] = json_value(f"objects.{op.object}", value_of(op.object, state))
        return objects([state])
    except BaseException as error:
        raise attempt.fail(op.stage, None, error) from error
