"""What a stage leaves for people: parts with their manifest, and the list of failed items."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from treadle.primitives.formats import claim_output, write_manifest, write_part

from ..plan import Segment
from ..runfiles import Manifest

if TYPE_CHECKING:
    from .run import Run


def claim(segment: Segment, run: str) -> None:
    """Take the output places for this run. Raises UsageError when they are another's."""
    if segment.output is not None:
        claim_output(segment.output.part.uri, run, segment.output.if_exists)
    for tolerance in segment.tolerated.values():
        if tolerance.failed_items:
            claim_output(tolerance.failed_items, run, "fail")


def publish(segment: Segment, manifest: Manifest, run: Run) -> None:
    """Write `_manifest.json`, listing exactly the committed parts, and the failed items. Idempotent."""
    if segment.output is not None:
        parts = [msgspec.structs.asdict(outcome.part) for outcome in manifest.outcomes if outcome.part is not None]
        about: dict[str, Any] = {"run": run.id, "workflow": run.job.workflow, "stage": segment.stages[-1]}
        rows = sum(outcome.part.rows for outcome in manifest.outcomes if outcome.part is not None)
        write_manifest(segment.output.part.uri, {**about, "rows": rows, "parts": parts})
    for stage, tolerance in segment.tolerated.items():
        if tolerance.failed_items:
            _publish_failed(stage, tolerance.failed_items, manifest, run)


def _publish_failed(stage: str, uri: str, manifest: Manifest, run: Run) -> None:
    """One part for each partition with failures: JSON lines in input order."""
    parts = []
    for outcome in manifest.outcomes:
        if outcome.failed_items is not None and outcome.counts[stage].failed:
            items = [item for item in run.blocks.get(outcome.failed_items.slice(0)) if item["stage"] == stage]
            lines = b"".join(msgspec.json.encode(item) + b"\n" for item in items)
            info = write_part(uri, outcome.partition, [lines], "jsonl")
            parts.append({"name": info.name, "size": info.size, "rows": len(items), "digest": info.digest})
    write_manifest(uri, {"run": run.id, "workflow": run.job.workflow, "stage": stage, "parts": parts})
