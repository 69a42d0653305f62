"""The number of bytes that fit into a task with a payload limit. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import msgspec

from treadle.executors.program import PartitionInput, Program

from ...planner.transport import SEALED

PARTITION_BYTES = 64
"""Bytes of payload for each partition besides its input: its keys, numbers and names."""
TASK_BYTES = 4096
"""Bytes of payload besides program and partitions: the run, the seal, the frame."""


def room(
    limit: int, program: Program, inputs: Sequence[PartitionInput], partitions: Iterable[int]
) -> tuple[float, dict[int, int]]:
    """(bytes for the partitions of one task, bytes of each partition). `limit`: of the payload; 0: none."""
    if not limit:
        return math.inf, {}
    encode = msgspec.msgpack.Encoder().encode
    weights = {index: len(encode(inputs[index])) + PARTITION_BYTES for index in partitions}
    return limit / SEALED - len(encode(program)) - TASK_BYTES, weights
