"""treadle's workflow language: workflows in YAML or Python, one model behind both.

    from treadle.dsl import Workflow, expr, parquet, task, text

General layout: `model` (what a document may contain), `document` and `yaml_*` (YAML with positions), `validate*` and
`diagnostics*` (what is wrong with it), `normalise` (the form stored with a run), `builder*` and `handles` (Python),
`expressions` and `templates` (`${{ }}`), `reference` (what it all means, as an interpreter).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from treadle.primitives.result import Result as Result

    from .builder import Loop as Loop
    from .builder import Workflow as Workflow
    from .builder_formats import csv as csv
    from .builder_formats import fixed as fixed
    from .builder_formats import items as items
    from .builder_formats import jsonl as jsonl
    from .builder_formats import npy as npy
    from .builder_formats import parquet as parquet
    from .builder_formats import range_ as range_
    from .builder_formats import text as text
    from .builder_parts import expr as expr
    from .handles import has as has
    from .handles import run as run
    from .handles import size as size
    from .model import Spec as Spec
    from .task_decorator import task as task

_FORMATS = ("csv", "fixed", "items", "jsonl", "npy", "parquet", "range_", "text")
_HOMES = {
    "Result": "treadle.primitives.result",
    "Workflow": "treadle.dsl.builder",
    "Loop": "treadle.dsl.builder",
    **dict.fromkeys(_FORMATS, "treadle.dsl.builder_formats"),
    "expr": "treadle.dsl.builder_parts",
    "has": "treadle.dsl.handles",
    "run": "treadle.dsl.handles",
    "size": "treadle.dsl.handles",
    "Spec": "treadle.dsl.model",
    "task": "treadle.dsl.task_decorator",
}

__all__ = [
    "Loop",
    "Result",
    "Spec",
    "Workflow",
    "csv",
    "expr",
    "fixed",
    "has",
    "items",
    "jsonl",
    "npy",
    "parquet",
    "range_",
    "run",
    "size",
    "task",
    "text",
]


def __getattr__(name: str) -> Any:
    """Import what is asked for only then: a module of user functions pays for `task` alone, not for the builder."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return found
