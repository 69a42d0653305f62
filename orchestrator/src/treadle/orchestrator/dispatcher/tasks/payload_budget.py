"""How much fits into a task where payloads are bounded. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import msgspec

from treadle.executors.program import PartitionInput, Program

from ...planner.transport import SEALED

PARTITION_BYTES = 64
"""Of a payload, for each partition besides its input: its keys, numbers and names."""
TASK_BYTES = 4096
"""Of a payload, besides program and partitions: the run, the seal, the frame."""


def room(
    limit: int, program: Program, inputs: Sequence[PartitionInput], partitions: Iterable[int]
) -> tuple[float, dict[int, int]]:
    """Bytes for the partitions of one task under a payload limit (0: none), and what each of them takes."""
    if not limit:
        return math.inf, {}
    encode = msgspec.msgpack.Encoder().encode
    weights = {index: len(encode(inputs[index])) + PARTITION_BYTES for index in partitions}
    return limit / SEALED - len(encode(program)) - TASK_BYTES, weights
