"""Output for users: parts with their manifest, and the list of failed items."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from treadle.executors.program import Job
from treadle.primitives.blocks import Blocks
from treadle.primitives.formats import check_output, claim_output, write_manifest, write_part
from treadle.primitives.run_paths import child_run

from ...plan.plan import Child, Graph, Segment
from ...run_store.run_files import Manifest
from .summary import check_metrics


def check(graph: Graph, run: str) -> None:
    """Raises UsageError if an output place of the run belongs to another run, as `claim` would later.

    Nodes that may be skipped are not checked. Blocking.
    """
    maybe: set[str] = set()
    for node in graph.walk():
        if node.when or not maybe.isdisjoint(node.data):
            maybe.add(node.id)
        elif isinstance(node, Segment):
            for uri, if_exists in _places(node):
                check_output(uri, run, if_exists)
        elif isinstance(node, Child) and node.graph is not None:
            check(node.graph, child_run(run, node.id))


def claim(segment: Segment, run: str) -> None:
    """Claim the output places for this run. Raises UsageError when a place belongs to another run."""
    for uri, if_exists in _places(segment):
        claim_output(uri, run, if_exists)


def _places(segment: Segment) -> Iterator[tuple[str, str]]:
    """(URI, value of `ifExists`)."""
    if segment.output is not None:
        yield segment.output.part.uri, segment.output.if_exists
    for tolerance in segment.tolerated.values():
        if tolerance.failed_items:
            yield tolerance.failed_items, "fail"


def publish(segment: Segment, manifest: Manifest, job: Job, blocks: Blocks) -> None:
    """Write `_manifest.json`, which lists exactly the committed parts, and the failed items. Idempotent.

    Raises UsageError for metrics that are too large, and for a place of another run.
    """
    check_metrics(manifest.summary, segment.id)
    if segment.output is not None:
        parts = [msgspec.structs.asdict(outcome.part) for outcome in manifest.outcomes if outcome.part is not None]
        about: dict[str, Any] = {"run": job.run, "workflow": job.workflow, "stage": segment.stages[-1]}
        rows = sum(outcome.part.rows for outcome in manifest.outcomes if outcome.part is not None)
        write_manifest(segment.output.part.uri, {**about, "rows": rows, "parts": parts})
    for stage, tolerance in segment.tolerated.items():
        if tolerance.failed_items:
            _publish_failed(stage, tolerance.failed_items, manifest, job, blocks)


def _publish_failed(stage: str, uri: str, manifest: Manifest, job: Job, blocks: Blocks) -> None:
    """One part for each partition with failures: JSON lines in input order."""
    parts = []
    for outcome in manifest.outcomes:
        if outcome.failed_items is not None and outcome.counts[stage].failed:
            items = [item for item in blocks.get(outcome.failed_items.slice(0)) if item["stage"] == stage]
            lines = b"".join(msgspec.json.encode(item) + b"\n" for item in items)
            info = write_part(uri, outcome.partition, [lines], "jsonl")
            parts.append({"name": info.name, "size": info.size, "rows": len(items), "digest": info.digest})
    write_manifest(uri, {"run": job.run, "workflow": job.workflow, "stage": stage, "parts": parts})
