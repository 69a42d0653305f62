"""Decisions of a Kafka trigger that the simulation does not check: waits, turns, memory, reports."""

from __future__ import annotations

from typing import Any

from treadle.dsl.triggers import EventBatch
from treadle.primitives.events import Event, Record
from treadle.triggers.kafka.batch import Match
from treadle.triggers.kafka.machine import HANDOVER, HELD_RECORDS, TriggerMachine
from treadle.triggers.kafka.machine_events import (
    Arrived,
    Assigned,
    Bury,
    Commit,
    CommitFailed,
    EffectDone,
    EffectFailed,
    Instruction,
    Judged,
    KafkaPartition,
    MaxActiveChanged,
    Note,
    OutOfRange,
    PauseChanged,
    Revoked,
    RunEnded,
    RunsCounted,
    Seek,
    Start,
    StartRefused,
    WantRecords,
    WatchRun,
)

A, B = KafkaPartition("t", "u", 0), KafkaPartition("t", "u", 1)


def machine(batch: EventBatch | None = None, max_active: int | None = None, window: int = 50) -> TriggerMachine:
    made = TriggerMachine(lambda _: batch, max_active, window=window)
    if max_active is not None:
        made.handle(RunsCounted(0), 0.0)
    for partition in (A, B):
        made.handle(Assigned(partition, 0), 0.0)
    return made


def batches(events: int, size: str = "8MiB") -> EventBatch:
    return EventBatch.model_validate({"maxEvents": events, "maxWait": "10s", "maxBytes": size}, by_alias=True)


def match(partition: KafkaPartition, offset: int, count: int = 1, version: int = 1) -> Judged:
    record = Record("t", "u", partition.number, offset, None, b"x")
    runs = [f"{partition.number}.{offset}" + f".{index}" * (index > 0) for index in range(count)]
    return Judged(record, version, tuple(Match(record, Event("1", "s", "t"), run) for run in runs))


def passed(partition: KafkaPartition, offset: int) -> Judged:
    return Judged(Record("t", "u", partition.number, offset), 1)


def dead(partition: KafkaPartition, offset: int) -> Judged:
    return Judged(Record("t", "u", partition.number, offset), 1, reason="poison")


def mark(it: TriggerMachine, partition: KafkaPartition) -> int | None:
    """The offset below which everything in a partition is done. None: it is not owned."""
    log = it._logs.get(partition)  # private: the model compares with the machine's own log
    return log.mark if log else None


def only(kind: type[Any], instructions: list[Instruction]) -> list[Any]:
    return [one for one in instructions if isinstance(one, kind)]


def runs(instructions: list[Instruction]) -> list[str]:
    return [one.batch.run for one in only(Start, instructions)]


def test_partitions_take_turns() -> None:
    it = machine(window=1)
    [first] = only(Start, it.handle(Arrived(A, tuple(match(A, offset) for offset in range(3))), 0.0))
    assert it.handle(Arrived(B, (match(B, 0),)), 0.0) == []
    assert runs(it.handle(EffectDone(first.ticket), 0.0)) == ["1.0"]


def test_offset_is_committed_up_to_the_first_record_that_is_not_done() -> None:
    it = machine()
    records = (match(A, 0), passed(A, 1), match(A, 2), match(A, 5))
    starts = only(Start, it.handle(Arrived(A, records), 0.0))
    it.handle(EffectDone(starts[1].ticket), 0.0)
    assert only(Commit, it.tick(10.0)) == []
    it.handle(EffectDone(starts[0].ticket), 10.0)
    assert only(Commit, it.tick(20.0)) == [Commit(A, 5)]
    it.handle(EffectDone(starts[2].ticket), 20.0)
    assert only(Commit, it.tick(30.0)) == [Commit(A, 6)]
    assert only(Commit, it.tick(40.0)) == []
    it.handle(CommitFailed(A), 40.0)
    assert only(Commit, it.tick(50.0)) == [Commit(A, 6)]


def test_record_of_several_objects_is_done_when_all_of_its_runs_are_there() -> None:
    it = machine()
    starts = only(Start, it.handle(Arrived(A, (match(A, 0, count=3),)), 0.0))
    assert [one.batch.run for one in starts] == ["0.0", "0.0.1", "0.0.2"]
    for done, one in enumerate(starts):
        assert mark(it, A) == 0, done
        it.handle(EffectDone(one.ticket), 0.0)
    assert mark(it, A) == 1


def test_failed_starts_come_again_later_and_later_and_in_order() -> None:
    it = machine(window=1)
    [start] = only(Start, it.handle(Arrived(A, (match(A, 0), match(A, 1))), 0.0))
    now, pauses = 0.0, []
    for _ in range(10):
        assert only(Start, it.handle(EffectFailed(start.ticket, "down"), now)) == []
        assert it.trouble == "down"
        failed = now
        while not (again := only(Start, it.tick(now))):
            now += 0.5
        pauses.append(now - failed)
        [start] = again
        assert start.batch.run == "0.0"
    assert pauses == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0, 30.0]
    assert runs(it.handle(EffectDone(start.ticket), now)) == ["0.1"]
    assert it.trouble == ""


def test_dead_letter_is_written_again_until_it_is() -> None:
    it = machine()
    [bury] = only(Bury, it.handle(Arrived(A, (dead(A, 0), passed(A, 1))), 0.0))
    it.handle(EffectFailed(bury.ticket, "full"), 0.0)
    assert (it.trouble, it.under_way) == ("full", 0)
    assert only(Bury, it.tick(0.1)) == []
    [again] = only(Bury, it.tick(0.5))
    assert (again.record, again.reason) == (bury.record, "poison")
    assert mark(it, A) == 0
    it.handle(EffectDone(again.ticket), 60.0)
    assert (mark(it, A), it.dead, it.trouble) == (2, 1, "")
    [bury] = only(Bury, it.handle(Arrived(A, (dead(A, 2),)), 60.0))
    it.handle(EffectFailed(bury.ticket, "full"), 60.0)
    assert len(only(Bury, it.tick(60.5))) == 1, "the pause is short again"


def test_handover_waits_for_starts_and_drops_the_rest() -> None:
    it = machine(window=1)
    [start] = only(Start, it.handle(Arrived(A, (match(A, 0), match(A, 1))), 0.0))
    it.handle(Revoked((A,)), 1.0)
    assert it.handle(Arrived(A, (match(A, 2), dead(A, 3))), 1.0) == []
    assert A in it.partitions
    done = it.handle(EffectDone(start.ticket), 2.0)
    assert [one for one in done if not isinstance(one, WantRecords)] == [Commit(A, 1)]
    assert it.partitions == (B,)


def test_handover_ends_without_an_answer() -> None:
    it = machine()
    [start] = only(Start, it.handle(Arrived(A, (match(A, 0),)), 0.0))
    it.handle(Revoked((A,)), 1.0)
    it.tick(1.0 + HANDOVER - 0.1)
    assert A in it.partitions
    assert only(Commit, it.tick(1.0 + HANDOVER)) == []
    assert A not in it.partitions
    assert it.handle(EffectDone(start.ticket), 20.0) == []


def test_reading_stops_when_much_is_held_and_goes_on_at_half() -> None:
    it = machine(window=1)
    records = tuple(match(A, offset) for offset in range(HELD_RECORDS + 1))
    asked = it.handle(Arrived(A, records), 0.0)
    assert only(WantRecords, asked) == [WantRecords(A, False), WantRecords(B, False)]
    [start] = only(Start, asked)
    resumed: list[WantRecords] = []
    while not resumed:
        answered = it.handle(EffectDone(start.ticket), 0.0)
        resumed = only(WantRecords, answered)
        [start] = only(Start, answered)
    assert resumed == [WantRecords(A, True), WantRecords(B, True)]
    assert it.held < HELD_RECORDS / 2 <= it.held + 1


def test_max_active_counts_known_and_listed_runs() -> None:
    it = machine(max_active=2)
    first = it.handle(Arrived(A, tuple(match(A, offset) for offset in range(5))), 0.0)
    assert runs(first) == ["0.0", "0.1"]
    done = [one for start in only(Start, first) for one in it.handle(EffectDone(start.ticket), 0.0)]
    assert done == [WatchRun("0.0"), WatchRun("0.1")]
    assert mark(it, A) == 2, "where several may run, their ends are not awaited"
    assert runs(it.handle(RunsCounted(3), 0.0)) == []
    assert runs(it.handle(RunEnded("0.0"), 0.0)) == []
    assert runs(it.handle(RunsCounted(0), 0.0)) == ["0.2"]
    assert runs(it.handle(MaxActiveChanged(None), 0.0)) == ["0.3", "0.4"]


def test_rest_starts_and_reads_nothing() -> None:
    it = machine()
    assert only(WantRecords, it.handle(PauseChanged(True), 0.0)) == [WantRecords(A, False), WantRecords(B, False)]
    assert runs(it.handle(Arrived(A, (match(A, 0),)), 0.0)) == []
    awake = it.handle(PauseChanged(False), 0.0)
    assert runs(awake) == ["0.0"]
    assert only(WantRecords, awake) == [WantRecords(A, True), WantRecords(B, True)]


def test_batch_is_cut_by_count_bytes_time_and_version() -> None:
    it = machine(batches(3))
    [full] = only(Start, it.handle(Arrived(A, (passed(A, 0), *(match(A, n) for n in (1, 2, 4)))), 0.0))
    assert (full.batch.run, len(full.batch.matched), full.batch.end) == ("0.1", 3, 5)
    it.handle(EffectDone(full.ticket), 0.0)
    assert runs(it.handle(Arrived(A, (match(A, 5), passed(A, 6))), 1.0)) == []
    assert runs(it.tick(10.9)) == []
    [late] = only(Start, it.tick(11.0))
    assert (late.batch.run, late.batch.end) == ("0.5", 7)
    it.handle(EffectDone(late.ticket), 11.0)
    [old] = only(Start, it.handle(Arrived(A, (match(A, 7), match(A, 8, version=2))), 12.0))
    assert (old.batch.run, old.batch.version, old.batch.end) == ("0.7", 1, 8)

    small = machine(batches(100, "2B"))
    [cut] = only(Start, small.handle(Arrived(B, tuple(match(B, n) for n in range(3))), 0.0))
    assert (cut.batch.run, cut.batch.end, cut.batch.size) == ("1.0", 2, 2)


def test_end_of_the_start_that_counts_is_adopted() -> None:
    it = machine(batches(4))
    [start] = only(Start, it.handle(Arrived(A, tuple(match(A, n) for n in range(6))), 0.0))
    assert only(Seek, it.handle(EffectDone(start.ticket, {"end": 2}), 0.0)) == [Seek(A, 2)]
    assert mark(it, A) == 2
    [start] = only(Start, it.handle(Arrived(A, tuple(match(A, n) for n in range(2, 6))), 0.0))
    assert start.batch.run == "0.2"
    assert only(Seek, it.handle(EffectDone(start.ticket, {"end": 9}), 0.0)) == [Seek(A, 9)]
    assert it.handle(Arrived(A, (match(A, 7), match(A, 8))), 0.0) == []
    assert mark(it, A) == 9


def test_only_unusable_records_of_a_refused_batch_become_letters() -> None:
    it = machine(batches(5))
    bad = 6
    records = (match(A, 0), match(A, 2), match(A, 3), passed(A, 4), match(A, bad), match(A, 7))
    [start] = only(Start, it.handle(Arrived(A, records), 0.0))
    started: list[tuple[str, int]] = []
    marks: list[int | None] = []
    for _ in range(20):
        offsets = [one.record.offset for one in start.batch.matched]
        if bad in offsets:
            answered = it.handle(StartRefused(start.ticket, "no such input"), 0.0)
        else:
            started.append((start.batch.run, start.batch.end))
            answered = it.handle(EffectDone(start.ticket, {"end": start.batch.end}), 0.0)
        marks.append(mark(it, A))
        for letter in only(Bury, answered):
            assert (letter.record.offset, letter.reason, only(Start, answered)) == (bad, "no such input", [])
            answered = it.handle(EffectDone(letter.ticket), 0.0)
        if not only(Start, answered):
            break
        [start] = only(Start, answered)
    assert started == [("0.0", 3), ("0.3", 6), ("0.7", 8)]
    assert marks == [0, 3, 3, 6, 6, 6, 8]
    assert (it.dead, it.held, mark(it, A)) == (1, 0, 8)


def test_deleted_records_are_reported_and_reading_goes_on() -> None:
    it = machine()
    [start] = only(Start, it.handle(Arrived(A, (match(A, 0),)), 0.0))
    told = it.handle(OutOfRange(A, 10, 20), 0.0)
    assert only(Seek, told) == [Seek(A, 10)]
    assert "1 to 9 were deleted" in only(Note, told)[0].text
    assert mark(it, A) == 0
    it.handle(EffectDone(start.ticket), 0.0)
    assert mark(it, A) == 10
    for low, high in ((0, 20), (10, 20), (0, 10)):
        there = it.handle(OutOfRange(A, low, high), 0.0)
        assert only(Seek, there) == [Seek(A, 10)], "what came meanwhile is read"
        assert "below 10 for a while" in only(Note, there)[0].text
    back = it.handle(OutOfRange(A, 0, 5), 0.0)
    assert only(Seek, back) == [Seek(A, 5)]
    assert "went back from 10 to 5" in only(Note, back)[0].text
