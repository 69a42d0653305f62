"""User functions: their arguments, their attempts, their metrics."""

from __future__ import annotations

import logging
import math
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from treadle.primitives.channels import GangContext
from treadle.primitives.errors import TreadleError, UsageError
from treadle.primitives.functions import describe, matches_type
from treadle.primitives.record_location import RecordPlace
from treadle.primitives.result import Result
from treadle.primitives.shuffling import seeds

from .data import isolated_value
from .objects import ReferenceEffect, ReferenceStageObjects

if TYPE_CHECKING:
    from numpy.random import Generator

T = TypeVar("T")
Function = Callable[..., Any]


class ReferenceFailure(TreadleError):
    """The run fails because of a user function or its data; `error` is the exception."""

    def __init__(self, stage: str, partition: int | None, error: BaseException) -> None:
        where = stage if partition is None else f"{stage}[{partition}]"
        super().__init__(f"{where}: {type(error).__name__}: {error}")
        self.stage = stage
        self.partition = partition
        self.error = error


class ReferenceCheckpoint:
    """The data that one attempt saves for the next one."""

    def __init__(self) -> None:
        self._data: bytes | None = None

    def load(self) -> bytes | None:
        return self._data

    def save(self, data: bytes) -> None:
        self._data = bytes(data)


@dataclass
class ReferenceContext:
    """The argument of a function with a parameter `context`."""

    run: str
    workflow: str
    started: str
    seed: int
    stage: str
    """With its iteration path, such as `lloyd[3].assign`."""
    partition: int
    attempt: int
    checkpoint: ReferenceCheckpoint
    objects: ReferenceStageObjects = field(default_factory=lambda: ReferenceStageObjects({}))
    effects: list[ReferenceEffect] = field(default_factory=list)
    """The calls of shared objects in this attempt."""
    find_record: Callable[[], RecordPlace] = RecordPlace

    @property
    def record(self) -> RecordPlace:
        """The location of the record that the function was called with."""
        return self.find_record()

    @property
    def gang(self) -> GangContext:
        """The gang of the calling thread. Raises UsageError outside of a gang."""
        return GangContext()

    @cached_property
    def rng(self) -> Generator:
        return seeds.rng(self.seed, self.stage, self.partition)

    @cached_property
    def logger(self) -> logging.Logger:
        return logging.Logger(self.stage)

    @cached_property
    def tmp(self) -> Path:
        return Path(tempfile.mkdtemp(prefix="treadle-"))

    def progress(self, done: int, total: int | None = None) -> None:
        """Ignored here."""

    def close(self) -> None:
        if "tmp" in self.__dict__:
            shutil.rmtree(self.tmp, ignore_errors=True)


@dataclass(frozen=True)
class AttemptPolicy:
    """How often a partition is attempted, and which errors are final."""

    attempts: int = 3
    non_retryable: tuple[str, ...] = ()


@dataclass
class ReferenceCall:
    """One attempt at one partition of one stage."""

    context: ReferenceContext
    final: bool
    """The last attempt."""
    policy: AttemptPolicy
    metrics: ReferenceMetrics

    def bind(self, function: Function, arguments: Mapping[str, Any]) -> Function:
        """Return the function with copies of its keyword arguments, and with the context when it has that parameter."""
        keywords = {name: isolated_value(value) for name, value in arguments.items()}
        if describe(function).takes_context:
            keywords["context"] = self.context
        return partial(function, **keywords)

    def gives_up(self, error: BaseException) -> bool:
        """Return whether the error is final: no attempt may follow it."""
        return self.final or matches_type(error, self.policy.non_retryable)


def attempted(
    make: Callable[[int], ReferenceCall], policy: AttemptPolicy, body: Callable[[ReferenceCall], T]
) -> tuple[T, ReferenceCall]:
    """Return the result of the first attempt that succeeds, and the attempt. Raises ReferenceFailure when none does."""
    for attempt in range(1, policy.attempts + 1):
        call = make(attempt)
        try:
            return body(call), call
        except Exception as error:
            if call.gives_up(error):
                raise ReferenceFailure(call.context.stage, call.context.partition, error) from error
        finally:
            call.context.close()
    raise AssertionError("there is at least one attempt")


def attempted_together(
    makes: Sequence[Callable[[int], ReferenceCall]],
    bodies: Sequence[Callable[[ReferenceCall], T]],
    policy: AttemptPolicy,
    finished: Callable[[ReferenceCall], None],
) -> list[T]:
    """Return the results of the first attempt in which all bodies, run concurrently, succeed; passes each of its calls
    to `finished`.

    Raises ReferenceFailure with the first error of the last attempt.
    """
    from .channels import together

    for attempt in range(1, policy.attempts + 1):
        calls = [make(attempt) for make in makes]
        parts = [partial(body, call) for body, call in zip(bodies, calls, strict=True)]
        values, failed = together(parts, calls[0].context.stage)
        for call in calls:
            call.context.close()
        if failed is None:
            for call in calls:
                finished(call)
            return values
        partition, error = failed
        if not isinstance(error, Exception):
            raise error
        if calls[partition].gives_up(error):
            raise ReferenceFailure(calls[partition].context.stage, partition, error) from error
    raise AssertionError("there is at least one attempt")


# -- metrics -------------------------------------------------------------------------------------------------------

_FOLDS: dict[str, Callable[[Any, Any], Any]] = {"sum": lambda a, b: a + b, "min": min, "max": max}
_TYPES: dict[str, tuple[type, ...]] = {"integer": (int,), "string": (str,), "boolean": (bool,)}


class ReferenceMetrics:
    """The declared metrics of one stage, folded in the order of calls, then of partitions."""

    def __init__(self, declared: Mapping[str, str]) -> None:
        self.declared = dict(declared)
        self.values: dict[str, Any] = {}

    def take(self, result: Any) -> Any:
        """Return the value of a function's result. Raises UsageError unless it reports exactly the declared metrics."""
        reported = dict(result.metrics) if isinstance(result, Result) else {}
        if reported.keys() != self.declared.keys():
            message = f"metrics {sorted(reported)} were reported, {sorted(self.declared)} are declared"
            raise UsageError(
                message, "Return Result(value, metrics={...}) with every declared metric, from every call."
            )
        self.add({name: _scalar(name, self.declared[name], value) for name, value in reported.items()})
        return result.value if isinstance(result, Result) else result

    def add(self, values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            fold = _FOLDS.get(self.declared[name])
            self.values[name] = fold(self.values[name], value) if fold and name in self.values else value

    def final(self) -> dict[str, Any]:
        """Return every declared metric; null when no call was made."""
        return {name: self.values.get(name) for name in self.declared}


def _scalar(name: str, kind: str, value: Any) -> Any:
    value = value.item() if getattr(value, "ndim", None) == 0 else value
    alike = isinstance(value, _TYPES.get(kind, (int, float))) and isinstance(value, bool) == (kind == "boolean")
    if not alike or (isinstance(value, float) and not math.isfinite(value)):
        raise UsageError(
            f"the metric {name!r} is {value!r}, declared as {kind}", "Report a finite scalar of that type."
        )
    return value
