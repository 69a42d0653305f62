"""The list of failed records survives the loss of its host, since nothing could recompute it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from executors.bench import KEY, RUN, call
from executors.operation_functions import divide

from treadle.executors.program import ItemSplit, Job, Keep, MapRecords, Outcome, Partition, Program, Task
from treadle.executors.runtime.runtime import Runtime
from treadle.primitives.blocks import Blocks
from treadle.primitives.stores.store import Store


@pytest.fixture
def outcome(tmp_path: Path) -> Outcome:
    """The outcome of a partition with a block in shared memory and one finally failed record."""
    store = Store.open(f"file://{tmp_path}/store")
    program = Program("s", (MapRecords("a", call(divide), tolerate=True),), Keep(), put="host", inline_limit=0)
    task = Task("t", Job(RUN, "w", "", 0, store.url, ""), program, (Partition(0, ItemSplit((1, 0, 2)), 1, True),))
    reports: list[Any] = []
    Runtime(str(tmp_path / "host"), 1 << 20, lambda name: "").run(task, KEY, reports.append)
    (report,) = reports
    assert isinstance(report, Outcome), report
    return report


def test_failed_records_are_read_when_the_host_is_gone(outcome: Outcome, tmp_path: Path) -> None:
    assert outcome.block is not None
    assert outcome.failed_items is not None
    assert [place.partition(":")[0] for place in outcome.block.locations] == ["host"]
    elsewhere = Blocks(Store.open(f"file://{tmp_path}/store"), RUN)
    (item,) = elsewhere.get(outcome.failed_items.slice(0))
    assert (item["position"], item["record"], item["error"]) == (1, 0, "ZeroDivisionError")
