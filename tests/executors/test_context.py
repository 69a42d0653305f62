"""The members of `context`: identity, reproducible randomness, a log, a folder, checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from executors.bench import RUN, Bench, call

from treadle.executors import Context
from treadle.executors.operations.attempt_state import stage_path
from treadle.executors.program import MapRecords, Reduce
from treadle.primitives.shuffling import seeds


def ask(record: str, *, context: Context) -> Any:
    return getattr(context, record)


def test_function_with_a_parameter_named_context_receives_its_context(bench: Bench) -> None:
    names = ["run", "workflow", "stage", "partition", "attempt", "started", "seed"]
    found = bench.records(MapRecords("a", call(ask)), source=names, index=3, attempt=2, segment="l-4/b")
    assert found == [RUN, "bench", "l[4].a", 3, 2, "2026-01-02T03:04:05Z", 7]


@pytest.mark.parametrize(
    ("segment", "stage", "path"),
    [
        ("assign", "assign", "assign"),
        ("lloyd-3/assign", "assign", "lloyd[3].assign"),
        ("outer-0/in_ner2-12/sort.sample", "sort", "outer[0].in_ner2[12].sort"),
    ],
)
def test_a_stage_path_names_the_iterations_around_it(segment: str, stage: str, path: str) -> None:
    assert stage_path(segment, stage) == path


def draw(record: int, *, context: Context) -> float:
    return float(context.rng.random())


def test_randomness_depends_on_seed_stage_iteration_and_partition_only(bench: Bench) -> None:
    def drawn(**place: Any) -> list[float]:
        stage = place.pop("stage", "a")
        return list(bench.records(MapRecords(stage, call(draw)), source=[0, 0], **place))

    first = drawn()
    assert first == drawn(attempt=2)
    assert first == seeds.rng(7, "a", 0).random(2).tolist()
    others = [drawn(index=1), drawn(stage="b"), drawn(segment="l-1/a"), drawn(segment="l-2/a")]
    assert len(np.unique([first, *others])) == 10


def test_a_reduce_function_may_ask_for_its_context_too(bench: Bench) -> None:
    assert bench.records(Reduce("r", "partition", uses=call(attempt_of)), source=[1], attempt=5) == [5]


def attempt_of(values: Any, context: Context) -> int:
    return context.attempt


def log(record: int, *, context: Context) -> None:
    context.logger.info("saw %d", record)
    context.progress(record, 10)


def test_the_log_goes_to_standard_error_with_stage_and_partition(
    bench: Bench, capfd: pytest.CaptureFixture[str]
) -> None:
    bench.records(MapRecords("a", call(log)), source=[1, 2], index=6)
    printed = capfd.readouterr().err
    assert "INFO a[6] saw 1\n" in printed
    assert "INFO a[6] saw 2\n" in printed
    assert printed.count("progress") == 1
    assert "progress 1/10" in printed


def use_folder(record: str, *, context: Context) -> str:
    (context.tmp / record).write_text("x")
    return str(context.tmp)


def test_the_temporary_folder_is_gone_after_the_partition(bench: Bench) -> None:
    one, two = bench.records(MapRecords("a", call(use_folder)), source=["x", "y"])
    assert one == two
    assert not Path(one).exists()
    (other,) = bench.records(MapRecords("a", call(use_folder)), source=["x"])
    assert other != one


def count_on(record: int, *, context: Context) -> int:
    seen = int(context.checkpoint.load() or b"0") + 1
    context.checkpoint.save(str(seen).encode())
    if seen < 3:
        raise ValueError("not yet")
    return seen


def test_a_checkpoint_is_there_for_the_next_attempt_and_for_no_other_partition(bench: Bench) -> None:
    op = MapRecords("a", call(count_on))
    for attempt in (1, 2):
        assert bench.failure(op, source=[0], attempt=attempt).message == "not yet"
    assert bench.failure(op, source=[0], index=1).message == "not yet"
    assert bench.records(op, source=[0], attempt=3) == [3]


def test_checkpoint_of_another_writer_is_refused(bench: Bench) -> None:
    bench.store.put(f"runs/{RUN}/checkpoints/a/0", b"999")
    assert bench.failure(MapRecords("a", call(count_on)), source=[0]).error.endswith("CorruptError")
