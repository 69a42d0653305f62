"""The inputs of the chaos runs, and their expected results."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
from chaos.killing import Sandbox


def write_inputs(folder: Path) -> dict[str, dict[str, object]]:
    """Small records and points in dozens of partitions, so that some are always running."""
    folder.mkdir()
    rng = np.random.default_rng(7)
    for index in range(4):
        rng.integers(33, 127, size=(15_000, 100), dtype=np.uint8).tofile(folder / f"rec-{index}")
    for index in range(12):
        np.save(folder / f"points-{index:02d}.npy", rng.normal(size=(200, 4)))
    return {
        "terasort": {"source": f"{folder}/rec-*"},
        "kmeans": {"points": f"{folder}/points-*.npy"},
    }


def digest(folder: Path) -> str:
    """A digest of the parts, by name and content."""
    parts = sorted(folder.glob("part-*"))
    assert parts
    return hashlib.sha256(
        b"".join(p.name.encode() + hashlib.sha256(p.read_bytes()).digest() for p in parts)
    ).hexdigest()


def undisturbed(sandbox: Sandbox, workflow: str, inputs: dict[str, object]) -> str:
    """The digest of an undisturbed run."""
    target = sandbox.root / "undisturbed"
    log = sandbox.root / "undisturbed.log"
    sandbox.submit(f"{workflow}.yaml", "calm", target=target, log=log, seconds=0, **inputs)
    done = sandbox.treadle("watch", "calm")
    assert done.returncode == 0, done.stderr
    return digest(target)
