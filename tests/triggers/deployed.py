"""For tests: workflows that are deployed without a command."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from treadle.client.submission import function_references
from treadle.dsl.model import Spec
from treadle.dsl.normalise import normalise
from treadle.executors.bundle.build import Bundle, build_bundle
from treadle.primitives.functions import describe, load
from treadle.primitives.stores.store import Store
from treadle.triggers.registry.deployment import Deployment
from treadle.triggers.registry.registry import DeploymentCandidate, Registry
from treadle.triggers.status_store import every_status, lives
from treadle.triggers.trigger_runner import TriggerStatus

TESTS = Path(__file__).parent.parent
M = "orchestrator.history_functions"


def document(triggers: Mapping[str, Any], name: str = "orders", **more: Any) -> dict[str, Any]:
    """A workflow with one trivial map. `inputs` and `stages` may be given."""
    stages = {"each": {"type": "map", "input": {"items": [1]}, "uses": f"{M}:same"}}
    return {"apiVersion": "treadle/v1", "name": name, "stages": stages, "triggers": dict(triggers), **more}


def read(given: Mapping[str, Any]) -> Spec:
    return Spec.model_validate(given, by_alias=True, by_name=False)


def deploy(registry: Registry, given: Mapping[str, Any], base: Path) -> Deployment:
    """Deploy a document as `treadle deploy` does."""
    spec = read(given)
    references = function_references(spec)
    functions, bundle = code(tuple(references))
    return registry.deploy(DeploymentCandidate(normalise(spec), functions, bundle.digest, bundle.data, str(base)))


@cache
def code(references: tuple[str, ...]) -> tuple[dict[str, Any], Bundle]:
    """(facts about the functions, the bundle). Cached, since building a bundle takes a while."""
    functions = {name: msgspec.to_builtins(describe(load(name, {}))) for name in references}
    return functions, build_bundle(references, [TESTS], {})


def living_statuses(store: Store, key: bytes) -> dict[str, list[TriggerStatus]]:
    """Instance -> the last report of each running service."""
    found = {name: [one for one in said if lives(one)] for name, said in every_status(store, key).items()}
    return {name: statuses for name, statuses in found.items() if statuses}
