"""A partition from input to report: failures and their classes, lost blocks, secrets, shared inputs, tasks."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
from executors.bench import KEY, Bench, call
from executors.operation_functions import identity, per_record
from hypothesis import assume, given
from hypothesis import strategies as st

from treadle.executors import memory_limit
from treadle.executors.program import (
    BlockInput,
    Broadcast,
    Call,
    Discard,
    Failure,
    ItemSplit,
    Keep,
    MapPartition,
    MapRecords,
    Outcome,
    Partition,
    PartOutput,
    Program,
    RangeSplit,
    Report,
    SecretRef,
    Task,
    ToBroadcast,
)
from treadle.executors.redaction import Redactor
from treadle.executors.runtime import process_setup
from treadle.executors.runtime.process_setup import give_back_memory, prepare_process
from treadle.executors.runtime.runtime import Runtime
from treadle.primitives import formats, functions
from treadle.primitives.encoding.references import Slice
from treadle.primitives.errors import FailureClass
from treadle.primitives.formats import FileSplit
from treadle.primitives.stores.input_files import list_files

# -- arguments and sharing ---------------------------------------------------------------------------------------------


def grow(record: Any, argument: Any) -> int:
    argument.append(record)
    return len(argument)


def test_every_partition_gets_arguments_of_its_own(bench: Bench) -> None:
    op = per_record(grow, argument=[])
    for _ in range(2):
        assert bench.records(op, source=[7, 8]) == [1, 2]
    block = bench.outcome(ToBroadcast("b", single=False, limit=1000), source=[1]).block
    assert block is not None
    op = MapRecords("a", Call(functions.reference(grow), {"argument": Broadcast(block.slice(0))}))
    for _ in range(2):
        assert bench.records(op, source=[7, 8]) == [2, 3]


def empty_it(records: Iterator[Any]) -> list[Any]:
    return [(record, record.clear()) for record in records]


@pytest.mark.parametrize("records", [[[1], [2]], [{"a": 1}]], ids=["lists", "dicts"])
def test_next_partition_does_not_see_changes_to_records(bench: Bench, records: Any) -> None:
    for source in (bench.blocks_of(records), ItemSplit(tuple(records))):
        bench.outcome(MapPartition("a", call(empty_it)), source=source)
        assert bench.records(source=source) == records


def test_frozen_input_is_decoded_once_and_mutable_input_each_time(bench: Bench) -> None:
    source = bench.blocks_of([("a", 1), ("b", 2)])
    first, again = (bench.records(per_record(address), source=source) for _ in range(2))
    assert first == again
    for _ in range(3):
        source = bench.blocks_of([{"a": 1}])
        cache: Any = bench.runtime._cache  # private: the bound of the cache has no other sign
        kept = len(cache._entries)  # private: the bound of the cache has no other sign
        bench.outcome(source=source)
        assert len(cache._entries) == kept


def address(record: Any) -> int:
    return id(record)


def test_the_cache_forgets_the_least_recently_used_beyond_its_bytes(tmp_path: Path) -> None:
    bench = Bench(tmp_path, cache_bytes=3000)
    sources = [bench.blocks_of([bytes(1000)]) for _ in range(4)]
    for source in sources:
        bench.outcome(source=source)
    cache: Any = bench.runtime._cache
    assert [name for name, _ in cache._entries] == [source.inputs[0][0].name for source in sources[2:]]
    assert cache._size <= 3000  # private: the bound of the cache has no other sign


# -- secrets -----------------------------------------------------------------------------------------------------------


def leak(record: Any, token: str) -> None:
    raise ValueError(f"token {token} {token!r} {msgspec.json.encode(token).decode()}")


def test_secrets_reach_the_function_and_leave_by_no_way(bench: Bench) -> None:
    asked = Call(functions.reference(leak), {"token": SecretRef("token")})
    failure = bench.failure(MapRecords("a", asked), source=[1], secrets=("token",))
    assert "s3cr3t" not in failure.message + failure.traceback
    assert failure.message == "token ***token*** '***token***' \"***token***\""
    outcome = bench.outcome(MapRecords("a", asked, tolerate=True), source=["has s3cr3t\"'x"], secrets=("token",))
    assert outcome.failed_items is not None
    (items,) = bench.values(outcome.failed_items)
    assert items[0]["record"] == "has ***token***"
    assert "s3cr3t" not in items[0]["message"]


def test_an_unknown_secret_fails_every_partition(bench: Bench) -> None:
    failure = bench.failure(source=[1], secrets=("nope",))
    assert "nope" in failure.message


@given(value=st.text(min_size=1), before=st.text(), after=st.text())
def test_redaction_leaves_no_secret_behind(value: str, before: str, after: str) -> None:
    assume(value != "***name***")  # Hypothesis tries constants of this file too
    redactor = Redactor({"name": value})
    for text in (before + value + after, repr(before + value + after)):
        assert text.count(value) == 0 or redactor.text(text) != text
    (redacted,) = redactor.record({"k": [value, (value.encode("utf-8", "surrogatepass"),)]}).values()
    assert redacted[0] == "***name***"


# -- tasks -------------------------------------------------------------------------------------------------------------


def fail_odd(record: int) -> int:
    if record % 2:
        raise ValueError("odd")
    return record


def test_a_failing_partition_is_reported_and_the_next_one_goes_on(bench: Bench) -> None:
    program = Program("s", (per_record(fail_odd),), Keep())
    partitions = tuple(Partition(index, RangeSplit(index, index + 1)) for index in range(4))
    reports: list[Report] = []
    bench.runtime.run(Task("t", bench.job, program, partitions), KEY, reports.append)
    assert [type(report) for report in reports] == [Outcome, Failure, Outcome, Failure]
    assert [report.partition for report in reports] == [0, 1, 2, 3]


def test_blocks_of_two_attempts_never_share_a_name(bench: Bench) -> None:
    outcomes = [bench.outcome(source=[1], inline=0) for _ in range(2)]
    names = [outcome.block.name for outcome in outcomes if outcome.block]
    assert len(set(names)) == 2
    assert all(name.startswith("segment/0.1.") for name in names)


def test_a_range_is_made_piece_by_piece(bench: Bench) -> None:
    assert bench.records(MapPartition("a", call(count)), source=RangeSplit(3, 300_000)) == [299_997]


def count(records: Iterator[int]) -> int:
    return sum(1 for _ in records)


def test_outcome_has_its_cost(bench: Bench) -> None:
    source = bench.blocks_of([1], [2])
    outcome = bench.outcome(per_record(work), source=source)
    assert outcome.bytes_in == sum(one.part.length for one in source.inputs[0])
    assert 0.02 <= outcome.seconds < 60
    assert outcome.cpu_seconds < outcome.seconds
    assert 1 << 20 < outcome.peak_memory < 1 << 34


def work(record: Any) -> None:
    time.sleep(0.01)


def test_peak_memory_is_that_of_the_partition(bench: Bench) -> None:
    def measured(size: int) -> Outcome:
        give_back_memory()  # an earlier test may have let this process keep it, where an allocation would go unseen
        return bench.outcome(per_record(allocate), source=[size])

    before, during, after = map(measured, (1, 100 << 20, 1))
    assert during.peak_memory > before.peak_memory + (90 << 20)
    if os.access("/proc/self/clear_refs", os.W_OK):
        assert after.peak_memory < before.peak_memory + (50 << 20)


def test_memory_is_measured_for_the_first_and_for_slow_partitions_of_a_task(
    bench: Bench,
) -> None:
    sizes = (1, 1, 100 << 20, 1)
    program = Program("segment", (per_record(allocate),), Keep())
    partitions = tuple(Partition(index, ItemSplit((size,))) for index, size in enumerate(sizes))
    reports: list[Report] = []
    give_back_memory()  # as above
    bench.runtime.run(Task("task", bench.job, program, partitions), KEY, reports.append)
    first, brief, long, _ = (report.peak_memory for report in reports)
    assert brief in (0, first) or brief > 1 << 20  # the machine may have been busy for a millisecond
    assert long > first + (90 << 20) > 90 << 20


def allocate(size: int) -> int:
    return len(bytearray(size))


def test_a_worker_counts_in_utc_with_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    monkeypatch.setenv("OMP_NUM_THREADS", "8")
    time.tzset()
    prepare_process()
    assert time.tzname[0] == "UTC"
    assert os.environ["OMP_NUM_THREADS"] == "1"


def test_memory_that_was_freed_is_used_again_until_it_is_given_back() -> None:
    script = """
import resource
from treadle.executors.runtime.process_setup import give_back_memory, prepare_process
prepare_process()
SIZE = 40 << 20  # more than the allocator would learn to keep by itself

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    len(bytearray(SIZE))
    return (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) * resource.getpagesize()

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()

assert faults() > SIZE // 2
assert faults() < SIZE // 8, "the kernel cleared it again"
held = resident()
give_back_memory()
assert resident() < held - SIZE // 2
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


M_MMAP_THRESHOLD = -3


def test_allocator_keeps_as_much_as_it_accepts_when_it_refuses_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Like mallopt in older versions of glibc (malloc.c, do_set_mmap_threshold)."""
    taken: dict[int, int] = {}

    def mallopt(option: int, value: int) -> int:
        if option == M_MMAP_THRESHOLD and value > 32 << 20:
            return 0
        taken[option] = value
        return 1

    monkeypatch.setattr(process_setup, "ctypes", SimpleNamespace(CDLL=lambda _: SimpleNamespace(mallopt=mallopt)))
    monkeypatch.setattr(memory_limit, "host_memory", lambda: 64 << 30)
    prepare_process()
    assert taken[M_MMAP_THRESHOLD] == 32 << 20


def test_plain_objects_need_neither_numpy_nor_pyarrow(tmp_path: Path) -> None:
    script = f"""
import sys
from pathlib import Path
sys.path.append({str(Path(__file__).parents[1])!r})
from treadle.executors.program import *
from executors.bench import Bench, call
bench = Bench(Path({str(tmp_path)!r}))
ops = (MapRecords("a", Call("operator:neg")),)
tail = Scatter("s", By(function="operator:abs"), 3)
assert len(bench.parts(*ops, source=[1, 2, 3], tail=tail)) == 3
heavy = {{"numpy", "pyarrow", "pydantic", "temporalio", "yaml", "typer"}} & set(sys.modules)
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


# -- files -------------------------------------------------------------------------------------------------------------


def text_file(folder: Path, text: str) -> FileSplit:
    (folder / "input.txt").write_text(text)
    (info,) = list_files(str(folder / "input.txt"))
    (split,) = formats.plan_splits(info, formats.ReadOptions("text"), 1 << 20)
    return split


def test_a_file_is_read_written_and_counted(bench: Bench, tmp_path: Path) -> None:
    split = text_file(tmp_path, "one\ntwo\n")
    uri = f"file://{tmp_path}/out"
    output = PartOutput(uri, formats.WriteOptions("text"))
    outcome = bench.outcome(per_record(upper), source=split, output=output, index=3, tail=Discard())
    assert outcome.part is not None
    assert (outcome.part.name, outcome.part.rows, outcome.rows, outcome.block) == ("part-00003.txt", 2, 2, None)
    assert (tmp_path / "out" / outcome.part.name).read_text() == "ONE\nTWO\n"
    assert outcome.bytes_in == 8


def upper(record: str) -> str:
    return record.upper()


def test_a_whole_text_partition_is_one_str(bench: Bench, tmp_path: Path) -> None:
    split = text_file(tmp_path, "one\ntwo")
    assert bench.records(MapPartition("a", call(identity), whole=True), source=split) == ["one\ntwo"]


def test_an_input_file_that_is_gone_is_a_user_error(bench: Bench, tmp_path: Path) -> None:
    split = text_file(tmp_path, "one")
    (tmp_path / "input.txt").unlink()
    failure = bench.failure(per_record(identity), source=split)
    assert (failure.failure, failure.lost, failure.stage) == (FailureClass.USER_ERROR, (), "a")


def test_a_part_that_is_there_with_other_bytes_is_a_user_error(bench: Bench, tmp_path: Path) -> None:
    output = PartOutput(f"file://{tmp_path}/out", formats.WriteOptions("text"))
    bench.outcome(source=["x"], output=output)
    assert bench.outcome(source=["x"], output=output).part is not None
    assert bench.failure(source=["y"], output=output).failure is FailureClass.USER_ERROR


# -- memory ------------------------------------------------------------------------------------------------------------


class Large:
    """A replacement for a partition's data."""


_alive: weakref.WeakSet[Large] = weakref.WeakSet()


def hold_and_fail(record: Any) -> None:
    held = Large()
    _alive.add(held)
    error = ValueError("a local of the frame it is raised in")
    raise error


@pytest.mark.parametrize("op", [MapRecords, MapPartition])
def test_a_failed_partition_leaves_nothing_of_itself_in_memory(bench: Bench, op: Any) -> None:
    gc.collect()
    gc.disable()
    try:
        bench.failure(op("a", call(hold_and_fail)), source=[1])
        assert len(_alive) == 0
    finally:
        gc.enable()


def test_blocks_of_this_host_are_mapped_by_the_next_partition(bench: Bench, tmp_path: Path) -> None:
    runtime = Runtime(str(tmp_path / "shared"), 1 << 20, str)
    reports: list[Report] = []

    def run(source: Any, *ops: Any) -> Outcome:
        program = Program("s", ops, Keep(), put="host", inline_limit=0)
        runtime.run(Task("t", bench.job, program, (Partition(0, source),)), KEY, reports.append)
        report = reports[-1]
        assert isinstance(report, Outcome), report
        return report

    made = run(RangeSplit(0, 100_000), MapPartition("a", call(to_array))).block
    assert made is not None
    assert made.locations[0].startswith("host:")
    summed = run(BlockInput(((made.slice(0),),)), MapPartition("a", call(sum_mapped))).block
    assert summed is not None
    assert runtime_value(runtime, summed.slice(0)) == [(4_999_950_000, True)]


def runtime_value(runtime: Runtime, slice: Slice) -> Any:
    run: Any = runtime._run  # private: the open run has no other access
    return run.blocks.get(slice)


def to_array(records: Iterator[int]) -> Any:
    return np.array(list(records))


def sum_mapped(array: Any) -> tuple[int, bool]:
    return int(array.sum()), not array.flags.owndata and not array.flags.writeable
