"""The workflow of checkpoints.py: logistic regression by gradient descent, its rows spread over a gang's members."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from treadle.executors import Context
from treadle.primitives.channels import ReduceChannel

DOCUMENT = """
apiVersion: treadle/v1
name: training
inputs:
  folder: {type: string}
  steps: {type: integer}
  every: {type: integer}
stages:
  fit:
    type: map
    input: {range: MEMBERS, partitions: MEMBERS}
    uses: "training:train"
    per: partition
    gang: MEMBERS
    timeout: 1h
    with: {folder: "${{ inputs.folder }}", steps: "${{ inputs.steps }}", every: "${{ inputs.every }}"}
"""
ROWS, FEATURES = 2_000, 50


def train(records: Iterator[int], *, folder: str, steps: int, every: int, context: Context) -> list[str]:
    """Return the weights. Each attempt writes its process id to a file."""
    (seat,) = records
    (Path(folder) / str(seat)).write_text(str(os.getpid()))
    random = np.random.default_rng(seat)
    rows = random.standard_normal((ROWS, FEATURES))
    wanted = (rows.sum(axis=1) > 0).astype(float)
    step, weights = context.gang.restored or (0, np.zeros(FEATURES))
    with ReduceChannel("gradient", np.add) as gradient:
        while step < steps:
            error = 1 / (1 + np.exp(-rows @ weights)) - wanted
            weights = weights - gradient.all_reduce(rows.T @ error) / (ROWS * context.gang.size)
            step += 1
            if step % every == 0 and step < steps:
                context.gang.checkpoint((step, weights))
    return [weights.tobytes().hex()]
