"""The calls of a session: functions, arguments and results by value.

The block of a partition's arguments holds one record: the number of calls, and their Arguments by value. The block of
its results holds one record: the CallResults by value. With `CallFunction.parts` it holds a record for each part.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from treadle.primitives.encoding.by_value import Packed, pack, unpack
from treadle.primitives.encoding.references import Slice

from ..failures import InputFailed, StageFailed, full_traceback
from ..program import CallFunction, StageCount
from .attempt_state import Attempt
from .record_flow import Flow, objects, records

Arguments = tuple[tuple[Any, ...], dict[str, Any]]
"""Positional arguments, and keywords."""
_KEPT = 100
"""Functions that a process keeps ready."""
_functions: OrderedDict[str, Callable[..., Any]] = OrderedDict()


class CallResult(NamedTuple):
    """The end of one call: its value, or its exception with the traceback of the worker."""

    value: Any
    error: BaseException | None = None
    traceback: str = ""


_KNOWN: frozenset[type] = frozenset({CallResult})


class UnpicklableError(Exception):
    """Stands for an exception or a result that cannot be pickled. Its text names the class and the reason."""


class _NeedFailed(BaseException):
    """A call that the arguments name has failed."""

    def __init__(self, result: CallResult) -> None:
        super().__init__()
        self.result = result


def call_function(op: CallFunction, flow: Flow, attempt: Attempt) -> Flow:
    """Call the function with each of the arguments. An exception is a result too, unless another attempt is left.

    Raises StageFailed for an exception that is retried, and for MemoryError.
    """
    (count, packed), *needed = records(flow)
    try:
        calls: list[Arguments] = unpack(packed, partial(_resolved, [unpack(one) for one in needed]))
        function = _function(op.function, attempt)
    except _NeedFailed as failed:
        return _output(op, [failed.result] * count)
    except (StageFailed, InputFailed):
        raise
    except BaseException as error:  # noqa: BLE001  as of the call itself
        return _output(op, [_failed(op, 0, error, attempt)] * count)
    results = [_result(op, function, one, calls[one], attempt) for one in range(count)]
    raised = sum(result.error is not None for result in results)
    if raised:
        attempt.counts[op.stage] = StageCount(count, raised)
    return _output(op, results)


def _output(op: CallFunction, results: list[CallResult]) -> Flow:
    if not op.parts:
        return objects([_packed(results)])
    return objects([_packed([_member(result, part) for result in results]) for part in range(op.parts)])


def _member(result: CallResult, part: int) -> CallResult:
    return result if result.error is not None else CallResult(result.value[part])


def _result(
    op: CallFunction, function: Callable[..., Any], position: int, arguments: Arguments, attempt: Attempt
) -> CallResult:
    try:
        return CallResult(function(*arguments[0], **arguments[1]))
    except BaseException as error:  # noqa: BLE001  a function may raise anything
        return _failed(op, position, error, attempt)


def _failed(op: CallFunction, position: int, error: BaseException, attempt: Attempt) -> CallResult:
    if isinstance(error, MemoryError) or not attempt.partition.final:
        raise attempt.fail(op.stage, position, error) from error
    return _picklable(CallResult(None, error, full_traceback(error)))


def _function(slice: Slice, attempt: Attempt) -> Callable[..., Any]:
    found = _functions.get(slice.name)
    if found is None:
        (packed,) = attempt.read(slice, shared=True)
        found = _functions[slice.name] = unpack(packed)
        if len(_functions) > _KEPT:
            _functions.popitem(last=False)
    return found


def _resolved(needed: list[list[CallResult]], name: tuple[Any, ...]) -> Any:
    """The values that a name stands for: ("one", need, position), or ("all", needs). Raises _NeedFailed."""
    if name[0] == "one":
        return _value(needed[name[1]][name[2]])
    return [_value(result) for need in name[1] for result in needed[need]]


def _value(result: CallResult) -> Any:
    if result.error is not None:
        raise _NeedFailed(result)
    return result.value


def _packed(results: list[CallResult]) -> Packed:
    """The results by value. A result that cannot be pickled is replaced by an UnpicklableError."""
    try:
        return pack(results, known=_KNOWN)
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001  any reducer may raise anything; the faulty ones are found one by one
        return pack([_picklable(result) for result in results])


def _picklable(result: CallResult) -> CallResult:
    try:
        unpack(pack(result))
        return result
    except MemoryError:
        raise
    except Exception as reason:  # noqa: BLE001  the same
        what = f"result of type {type(result.value).__name__}" if result.error is None else repr(result.error)
        error = UnpicklableError(f"the {what} cannot be pickled: {type(reason).__name__}: {reason}")
        return CallResult(None, error, result.traceback or str(error))
