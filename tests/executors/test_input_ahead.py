"""The input of a partition is fetched while the partition before it runs, if it is in an object store."""

from __future__ import annotations

import threading
import uuid

import pytest
from executors.bench import KEY, Bench, call

from treadle.executors.program import BlockInput, Keep, MapPartition, Outcome, Partition, Program, Report, Task
from treadle.primitives.encoding.references import Slice
from treadle.primitives.stores.store import ObjectInfo, ObjectStore

SOURCES, PARTITIONS = 4, 2


class Far(Bench):
    """A shuffle's blocks in an object store."""

    def __init__(self) -> None:
        super().__init__(f"memory://{uuid.uuid4().hex}")
        blocks = [self.put(*([(source, target)] for target in range(PARTITIONS))) for source in range(SOURCES)]
        self.inputs = [tuple(block.slice(target) for block in blocks) for target in range(PARTITIONS)]

    def run(self, *inputs: tuple[Slice, ...]) -> list[Report]:
        reports: list[Report] = []
        program = Program("segment", (MapPartition("a", call(len_of)),), Keep(), inline_limit=8192)
        partitions = tuple(Partition(index, BlockInput((one,))) for index, one in enumerate(inputs))
        self.runtime.run(Task("task", self.job, program, partitions), KEY, reports.append)
        return reports


def len_of(records: object) -> int:
    return len(list(records))  # type: ignore[call-overload]


@pytest.fixture
def far() -> Far:
    return Far()


def test_parts_of_all_partitions_of_a_task_are_requested_at_the_same_time(
    far: Far, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = threading.Barrier(SOURCES * PARTITIONS)
    known = ObjectStore.get_part

    def meeting(self: ObjectStore, name: str, start: int, length: int) -> tuple[bytes, ObjectInfo | None]:
        together.wait(60)
        return known(self, name, start, length)

    monkeypatch.setattr(ObjectStore, "get_part", meeting)
    reports = far.run(*far.inputs)
    assert [type(report) for report in reports] == [Outcome] * PARTITIONS
    assert sum(report.requests.get("get", 0) for report in reports) == SOURCES * PARTITIONS


def test_parts_in_the_cache_are_not_requested(far: Far) -> None:
    far.run(*far.inputs)
    assert [report.requests for report in far.run(*far.inputs)] == [{}, {}]


def test_lost_part_fails_its_own_partition_alone(far: Far) -> None:
    first, second = far.inputs
    far.store.delete([f"runs/{far.job.run}/blocks/{second[1].name}"])
    reports = far.run(first[:1], second, first[2:3])
    assert [isinstance(report, Outcome) for report in reports] == [True, False, True]
    assert reports[1].lost == (second[1].name,)  # type: ignore[union-attr]
