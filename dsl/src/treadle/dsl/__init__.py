"""treadle's workflow language: workflows in YAML or Python, with one model for both.

    from treadle.dsl import Workflow, expr, parquet, task, text

Layout:

    model                    the keys and values of a document
    document                 reading YAML, with positions
    graph, validation,       the checks of a document, and their findings
    diagnostics
    normalise                the form that a run stores
    builder                  workflows in Python
    expressions, templates   `${{ }}`
    reference                the meaning of a workflow, as an interpreter
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from treadle.primitives.lazy_import import late

if TYPE_CHECKING:
    from treadle.primitives.result import Result

    from .builder.conversion import expr
    from .builder.decorator import task
    from .builder.formats import csv, fixed, items, jsonl, npy, parquet, range_, text
    from .builder.handles import contains, ends_with, has, is_in, matches, run, size, starts_with
    from .builder.triggers import batch, event, kafka, objects, schedule, trigger, webhook
    from .builder.workflow import Loop, Workflow
    from .model import Spec

_FORMATS = ("csv", "fixed", "items", "jsonl", "npy", "parquet", "range_", "text")
_TESTS = ("contains", "ends_with", "has", "is_in", "matches", "size", "starts_with")
_TRIGGERS = ("batch", "event", "kafka", "objects", "schedule", "trigger", "webhook")
_HOMES = {
    "Result": "treadle.primitives.result",
    "Workflow": ".builder.workflow",
    "Loop": ".builder.workflow",
    **dict.fromkeys(_FORMATS, ".builder.formats"),
    **dict.fromkeys(_TESTS, ".builder.handles"),
    **dict.fromkeys(_TRIGGERS, ".builder.triggers"),
    "expr": ".builder.conversion",
    "run": ".builder.handles",
    "Spec": ".model",
    "task": ".builder.decorator",
}

__all__ = [
    "Loop",
    "Result",
    "Spec",
    "Workflow",
    "batch",
    "contains",
    "csv",
    "ends_with",
    "event",
    "expr",
    "fixed",
    "has",
    "is_in",
    "items",
    "jsonl",
    "kafka",
    "matches",
    "npy",
    "objects",
    "parquet",
    "range_",
    "run",
    "schedule",
    "size",
    "starts_with",
    "task",
    "text",
    "trigger",
    "webhook",
]

# A module of user functions imports `task` alone, not the whole builder.
__getattr__ = late(__name__, _HOMES)
