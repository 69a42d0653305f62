"""A worker process with little memory: datasets of several times its budget pass through, and it keeps to the budget.

The budget is also a hard limit: a worker that allocates more fails with OUT_OF_MEMORY.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from executors import spill_functions as functions
from executors.bench import call
from executors.operation_functions import FIRST, by, name
from executors.spill_line import SIZES, Line, lent, started

from treadle.executors import Place
from treadle.executors.program import BlockInput, MapPartition, RangeSplit, Reduce, Scatter, Sort

RECORD_BYTES = 104
"""Encoded bytes of a record of `functions.records`."""


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with lent(tmp_path) as found:
        yield found


async def shuffled(line: Line, count: int) -> BlockInput:
    """Records of `functions.records`, shuffled to one target."""
    made = MapPartition("made", call(functions.records), flat=True)
    outcome = await line.run(made, source=RangeSplit(0, count), tail=Scatter("shuffle", FIRST, 1))
    assert outcome.block is not None
    assert abs(outcome.block.size - count * RECORD_BYTES) < count * RECORD_BYTES // 10
    assert outcome.spilled > outcome.block.size // 2
    return BlockInput(((outcome.block.slice(0),),), pieces=True)


@pytest.mark.parametrize(("memory", "size"), SIZES)
async def test_a_dataset_of_several_budgets(place: Place, memory: int, size: int) -> None:
    """One task makes and shuffles it to one target. One task each sorts, reduces per key and folds it."""
    count = size // RECORD_BYTES
    async with started(place, memory) as line:
        target = await shuffled(line, count)

        in_order = await line.run(Sort("sorted", FIRST), source=target)
        assert in_order.block is not None
        checked = await line.run(
            Reduce("check", "partition", uses=call(functions.ordered)),
            source=BlockInput(((in_order.block.slice(0),),)),
        )
        assert line.records(checked.block) == [(count, True)]
        line.blocks.host.delete_folder("spill/segment-2")  # type: ignore[union-attr]

        grouped = await line.run(
            Reduce("grouped", "key", uses=call(functions.count), by=by(functions.by_first_digits)), source=target
        )
        found = dict(line.records(grouped.block))
        assert sum(number for number, _ in found.values()) == count
        assert list(found)[:2] == [f"{functions.spread(number):010}"[:6] for number in range(2)]

        folded = await line.run(Reduce("folded", "key", combine=name(functions.longer), by=FIRST), source=target)
        assert folded.rows == count

        assert all(outcome.spilled > size // 2 for outcome in (in_order, grouped, folded))


@pytest.mark.parametrize(("memory", "size"), SIZES)
async def test_a_key_of_several_budgets(place: Place, memory: int, size: int) -> None:
    """The function gets the values one after the other."""
    count = size // RECORD_BYTES
    async with started(place, memory) as line:
        target = await shuffled(line, count)
        one = await line.run(
            Reduce("one", "key", uses=call(functions.count), by=by(functions.everything)), source=target
        )
        assert line.records(one.block) == [(0, (count, sum(number % 10 for number in range(count))))]
        assert size // 2 < one.spilled < 2 * size
