"""Documents small enough to be computed by hand, interpreted in one call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from treadle.dsl.model import Spec
from treadle.dsl.reference import ReferenceResult, run_reference

Stages = Mapping[str, Any]


def interpret(
    stages: Stages, functions: Mapping[str, Any] | None = None, base: Path | None = None, **document: Any
) -> ReferenceResult:
    """Run a document with these stages. `m:name` is `functions["name"]`."""
    inputs = document.pop("given", {})
    secrets = document.pop("known_secrets", {})
    spec = Spec.model_validate({"apiVersion": "treadle/v1", "name": "w", "stages": stages, **document})
    known = {f"m:{name}": function for name, function in {**COMMON, **(functions or {})}.items()}
    return run_reference(spec, inputs, known.__getitem__, base, secrets=secrets)


def values(result: ReferenceResult, stage: str) -> list[Any]:
    return [partition.value for partition in result.datasets[stage]]


COMMON: dict[str, Callable[..., Any]] = {
    "add": lambda a, b: a + b,
    "pair": lambda x: (x % 3, x),
    "same": lambda x: x,
    "listed": list,
    "total": sum,
    "show": lambda a, b: f"({a}{b})",
}


def items(*records: Any, partitions: int = 1) -> dict[str, Any]:
    return {"items": list(records), "partitions": partitions}
