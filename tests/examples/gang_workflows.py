"""A workflow of two gangs, for every executor that runs gangs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from treadle.dsl.model import Spec

MODELS = Path(__file__).parent / "gang_models"


def models(executor: str, size: int) -> Spec:
    """Two gangs of `size` members over the same rows, which may not run at once: each needs all slots."""
    drawn = {"range": size, "partitions": size}
    gang: dict[str, Any] = {"type": "map", "input": "draw", "per": "partition", "gang": size}
    stages: dict[str, dict[str, Any]] = {
        "draw": {
            "type": "map",
            "input": drawn,
            "per": "partition",
            "uses": "gang_models:draw",
            "with": {"rows": 2_000},
        },
        "kmeans": {**gang, "uses": "gang_models:kmeans", "with": {"k": 4, "steps": 10}},
        "logistic": {**gang, "uses": "gang_models:logistic", "with": {"steps": 30, "rate": 0.1}},
    }
    for name in ("kmeans", "logistic"):
        stages[name]["output"] = {"uri": f"out/{name}", "format": "npy"}
    defaults = {"executor": executor}
    return Spec.model_validate(
        {"apiVersion": "treadle/v1", "name": "models", "seed": 3, "stages": stages, "defaults": defaults}
    )
