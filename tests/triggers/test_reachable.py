"""A deployment is refused if all runs of a trigger would use URIs that the profile does not allow."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from triggers.test_addresses import READS

from treadle.dsl.model import Spec
from treadle.dsl.normalise import normalise
from treadle.primitives.errors import UsageError
from treadle.triggers.address_check import check_reachable
from treadle.triggers.registry.deployment import Deployment

NOW = datetime(2026, 1, 31, 2, tzinfo=UTC)
BY_URI = {"orders": {"uri": "${{ event.data.uri }}", "format": "jsonl"}}
BY_DAY = {"orders": {"uri": "s3://lake/dt=${{ trigger.time.date }}/*.jsonl", "format": "jsonl"}}
ITEMS = {"orders": {"items": ["${{ event.data }}"]}}
OUT = {"uri": "s3://out/${{ run.id }}", "format": "jsonl"}


def deployment(settings: dict[str, Any], **stage: Any) -> Deployment:
    document = {
        "apiVersion": "treadle/v1",
        "name": "w",
        "inputs": {"orders": {"type": "dataset", "required": True}},
        "stages": {"each": {**READS, **stage}},
        "triggers": {"t": settings},
    }
    spec = Spec.model_validate(document, by_alias=True, by_name=False)
    return Deployment("w", 1, 0.0, normalise(spec), {}, "", "/srv/project")


POLL: dict[str, Any] = {"type": "object", "poll": {"uri": "s3://lake/in/"}}
HOOK: dict[str, Any] = {"type": "webhook", "with": ITEMS}
NIGHTLY: dict[str, Any] = {"type": "schedule", "cron": "0 2 * * *", "with": BY_DAY}


@pytest.mark.parametrize(
    ("settings", "stage", "allow", "line"),
    [
        ({**POLL, "with": BY_URI}, {}, None, '  allow = ["/srv/project", "s3://lake/in/"]'),
        ({**POLL, "with": BY_URI}, {}, ["s3://out/"], '  allow = ["s3://out/", "s3://lake/in/"]'),
        (NIGHTLY, {}, ["s3://out/"], '  allow = ["s3://out/", "s3://lake/dt=2026-01-31/"]'),
        (HOOK, {"output": OUT}, None, '  allow = ["/srv/project", "s3://out/"]'),
    ],
)
def test_a_trigger_that_could_start_no_run_is_refused_with_the_line_to_add(
    settings: dict[str, Any], stage: dict[str, Any], allow: Sequence[str] | None, line: str
) -> None:
    with pytest.raises(UsageError, match=r"w\.t could start no run: it would touch 's3://") as caught:
        check_reachable(deployment(settings, **stage), allow, "lab", NOW)
    assert caught.value.hint.endswith(f"\n  [lab]\n{line}")


@pytest.mark.parametrize(
    ("settings", "stage", "allow"),
    [
        ({**POLL, "with": BY_URI}, {}, ["s3://lake/"]),
        ({**POLL, "with": ITEMS}, {}, None),
        (NIGHTLY, {"output": OUT}, ["s3://"]),
        (HOOK, {"output": {"uri": "out/${{ run.id }}", "format": "jsonl"}}, None),
    ],
)
def test_a_trigger_whose_runs_may_start_is_deployed(
    settings: dict[str, Any], stage: dict[str, Any], allow: Sequence[str] | None
) -> None:
    check_reachable(deployment(settings, **stage), allow, "lab", NOW)
