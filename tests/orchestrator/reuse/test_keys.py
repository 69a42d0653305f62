"""The content key, for every key of a document: the keys that change it, and the keys that do not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from orchestrator.planner.test_planner import SITE

from treadle.dsl.model import (
    Batch,
    BroadcastStage,
    Items,
    LoopStage,
    MapStage,
    Range,
    ReduceStage,
    ShuffleStage,
    Source,
    Spec,
)
from treadle.orchestrator.planner import make_plan
from treadle.orchestrator.reuse.content_key import keys_of
from treadle.orchestrator.run_store.run_files import Submission

LISTED = {"range": 8, "partitions": 4}
PAIR = {"type": "map", "input": LISTED, "uses": "m:f"}
GROUPS = {"type": "shuffle", "input": LISTED, "by": "key", "partitions": 2}
WHOLE = {"type": "reduce", "input": LISTED, "per": "all", "uses": "m:f"}
FOLD = {"type": "reduce", "input": LISTED, "per": "all", "combine": "m:f"}
SHIP = {"type": "broadcast", "input": LISTED}
TEXT = {"uri": "a.txt", "format": "text"}
CSV = {"uri": "a.csv", "format": "csv"}
LOOP: dict[str, Any] = {
    "type": "loop",
    "state": {"x": "first", "n": 0},
    "maxIterations": 3,
    "until": "state.n > 5",
    "stages": {"inner": {"type": "map", "input": "state.x", "uses": "m:f"}},
    "next": {"x": "inner", "n": "${{ state.n + 1 }}"},
}
INNER = LOOP["stages"]["inner"]

COUNTS: dict[type, dict[str, tuple[dict[str, Any], dict[str, Any]]]] = {
    MapStage: {
        "input": (PAIR, {"input": {"range": 9, "partitions": 4}}),
        "uses": (PAIR, {"uses": "m:g"}),
        "per": (PAIR, {"per": "partition"}),
        "flat": (PAIR, {"flat": True}),
        "whole": ({**PAIR, "input": TEXT, "per": "partition"}, {"whole": True}),
        "with_": (PAIR, {"with": {"n": 1}}),
        "batch": (PAIR, {"batch": {"maxItems": 1}}),
        "metrics": (PAIR, {"metrics": {"n": "sum"}}),
        "gang": (PAIR, {"gang": 4}),
        "cache": (PAIR, {"cache": {"version": 2}}),
        "tolerated_failures": (PAIR, {"toleratedFailures": 0}),
    },
    ShuffleStage: {
        "input": (GROUPS, {"input": {"range": 9, "partitions": 4}}),
        "by": (GROUPS, {"by": "m:f"}),
        "partitions": (GROUPS, {"partitions": 3}),
        "partitioner": (GROUPS, {"partitioner": {"type": "range", "boundaries": [4]}}),
        "sort": (GROUPS, {"sort": True}),
        "combine": (GROUPS, {"combine": "m:f"}),
        "cache": (GROUPS, {"cache": {"version": 2}}),
    },
    BroadcastStage: {
        "input": (SHIP, {"input": {"range": 9, "partitions": 4}}),
        "limit": (SHIP, {"limit": "1MiB"}),
        "cache": (SHIP, {"cache": {"version": 2}}),
    },
    ReduceStage: {
        "input": (FOLD, {"input": {"range": 9, "partitions": 4}}),
        "per": (FOLD, {"per": "partition"}),
        "uses": (WHOLE, {"uses": "m:g"}),
        "combine": (FOLD, {"combine": "m:g"}),
        "initial": (FOLD, {"initial": None}),
        "finish": (FOLD, {"finish": "m:f"}),
        "fan_in": (FOLD, {"fanIn": 2}),
        "with_": ({**FOLD, "finish": "m:f"}, {"with": {"n": 1}}),
        "metrics": (WHOLE, {"metrics": {"n": "integer"}}),
        "cache": (FOLD, {"cache": {"version": 2}}),
    },
    LoopStage: {
        "state": (LOOP, {"state": {"x": "first", "n": 1}}),
        "max_iterations": (LOOP, {"maxIterations": 4}),
        "until": (LOOP, {"until": "state.n > 6"}),
        "on_exhausted": (LOOP, {"onExhausted": "succeed"}),
        "stages": (LOOP, {"stages": {"inner": {**INNER, "uses": "m:g"}}}),
        "next": (LOOP, {"next": {"x": "inner", "n": "${{ state.n + 2 }}"}}),
    },
    Source: {
        "uri": ({**PAIR, "input": TEXT}, {"input": {**TEXT, "uri": "a.csv"}}),
        "format": ({**PAIR, "input": TEXT}, {"input": {**TEXT, "format": "jsonl"}}),
        "split": ({**PAIR, "input": TEXT}, {"input": {**TEXT, "split": "4B"}}),
        "record_bytes": (
            {**PAIR, "input": {"uri": "a.txt", "format": "fixed", "recordBytes": 2}},
            {"input": {"uri": "a.txt", "format": "fixed", "recordBytes": 4}},
        ),
        "header": ({**PAIR, "input": CSV}, {"input": {**CSV, "header": False}}),
        "delimiter": ({**PAIR, "input": CSV}, {"input": {**CSV, "delimiter": ";"}}),
        "compression": ({**PAIR, "input": TEXT}, {"input": {**TEXT, "compression": "gzip"}}),
        "table": ({**PAIR, "input": TEXT}, {"input": {**TEXT, "table": True}}),
    },
    Items: {
        "items": ({**PAIR, "input": {"items": [1, 2]}}, {"input": {"items": [1, 2.0]}}),
        "partitions": ({**PAIR, "input": {"items": [1, 2]}}, {"input": {"items": [1, 2], "partitions": 1}}),
    },
    Range: {
        "range": (PAIR, {"input": {"range": 7, "partitions": 4}}),
        "partitions": (PAIR, {"input": {"range": 8, "partitions": 2}}),
    },
    Batch: {
        "max_items": ({**PAIR, "batch": {"maxItems": 1}}, {"batch": {"maxItems": 2}}),
        "max_bytes": ({**PAIR, "batch": {"maxBytes": "1KiB"}}, {"batch": {"maxBytes": "2KiB"}}),
    },
}
"""Key of a document -> (a stage, the change to it)."""
ASIDE: dict[str, Any] = {
    "description": "of another kind",
    "when": "1 < 2",
    "needs": ["first"],
    "retry": {"maximumAttempts": 7, "nonRetryableErrorTypes": ["ValueError"]},
    "timeout": "1h",
    "deadline": "2h",
    "max_concurrency": 1,
    "memory": "1GiB",
    "executor": "isolated",
    "exchange": "storage",
    "durability": "task",
    "backups": False,
}
"""Keys that do not change results."""
ELSEWHERE = {"type", "output", "idempotent", "failed_items", "objects"}
"""Keys that make another stage, or one that is not cached."""
WORKING: tuple[dict[str, Any], ...] = (PAIR, GROUPS, SHIP, WHOLE, FOLD)


def counting() -> Iterator[Any]:
    for model, fields in COUNTS.items():
        for field, (stage, change) in fields.items():
            yield pytest.param(stage, change, id=f"{model.__name__}.{field}")


def key(stage: Mapping[str, Any], base: Path, functions: Mapping[str, Any] | None = None, **document: Any) -> str:
    """The content key of a stage that reads `one`."""
    last: dict[str, Any] = {"type": "map", "input": "one", "uses": "m:last", "needs": ["one"]}
    if stage["type"] == "broadcast":
        last |= {"input": LISTED, "with": {"value": "${{ stages.one }}"}}
    elif stage["type"] == "loop":
        last |= {"input": "one.state.x"}
    stages = {"first": {"type": "map", "input": LISTED, "uses": "m:first"}, "one": stage, "last": last}
    given = {"apiVersion": "treadle/v1", "name": "w", "defaults": {"cache": True}, "stages": stages, **document}
    spec = Spec.model_validate(given, by_alias=True, by_name=False)
    site = replace(SITE, executors={name: replace(can, shares_host=True) for name, can in SITE.executors.items()})
    found = make_plan(spec, {}, {"id": "r", "startTime": "2026-01-01T00:00:00Z"}, functions or {}, base, site)
    return keys_of(found, Submission("r", given, {}, "bundle", dict(functions or {}), str(base)))["last"]


def _written(field: str, value: Any) -> dict[str, Any]:
    """The field as the key of a document."""
    return {MapStage.model_fields[field].alias or field: value}


@pytest.fixture
def files(tmp_path: Path) -> Path:
    for name in ("a.txt", "a.csv"):
        (tmp_path / name).write_text("1;2\n3;4\n")
    return tmp_path


@pytest.mark.parametrize(("stage", "change"), list(counting()))
def test_what_counts_for_a_result_makes_another_key(stage: dict[str, Any], change: dict[str, Any], files: Path) -> None:
    assert key(stage, files) == key(dict(stage), files)
    assert key(stage, files) != key({**stage, **change}, files)


@pytest.mark.parametrize(("stage", "field"), [(stage, field) for stage in WORKING for field in ASIDE])
def test_what_changes_no_result_leaves_the_key(stage: dict[str, Any], field: str, tmp_path: Path) -> None:
    assert key({**stage, **_written(field, ASIDE[field])}, tmp_path) == key(stage, tmp_path)


@pytest.mark.parametrize("stage", [PAIR, WHOLE, FOLD])
def test_where_files_go_leaves_the_key_since_they_are_written_apart(stage: dict[str, Any], tmp_path: Path) -> None:
    assert key({**stage, "output": {"uri": "out", "format": "jsonl"}}, tmp_path) == key(stage, tmp_path)


@pytest.mark.parametrize("model", COUNTS, ids=lambda model: model.__name__)
def test_every_key_of_the_language_is_classified_for_the_cache(model: type[MapStage]) -> None:
    assert model.model_fields.keys() <= {*COUNTS[model], *ASIDE, *ELSEWHERE}


def test_cache_key_counts_code_libraries_and_a_requested_workflow_name(tmp_path: Path) -> None:
    code = {"units": {"m.py:f": "1"}, "versions": {"python": "3.12"}}
    known = {"m:f": {"code": code, "takes_context": True}}
    usual = key(PAIR, tmp_path, known)
    assert key(PAIR, tmp_path, known, description="another") == usual
    assert key(PAIR, tmp_path, known, name="v") != usual
    assert key(PAIR, tmp_path, known, seed=1) != usual
    for part in ({"units": {"m.py:f": "2"}}, {"units": {"m.py:g": "1"}}, {"versions": {"python": "3.13"}}):
        assert key(PAIR, tmp_path, {"m:f": {"code": code | part, "takes_context": True}}) != usual
    quiet = {"m:f": {"code": code, "takes_context": False}}
    assert key(PAIR, tmp_path, quiet, name="v") == key(PAIR, tmp_path, quiet)
