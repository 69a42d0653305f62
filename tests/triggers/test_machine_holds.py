"""Decisions of a Kafka trigger about held records: how many, until when, and records that it no longer owns."""

from __future__ import annotations

import pytest
from triggers.test_machine import A, B, batches, machine, mark, match, only, passed, runs

from treadle.primitives.events import Event, Record
from treadle.triggers.kafka.batch import Match
from treadle.triggers.kafka.machine import COMMIT_EVERY, HANDOVER, HELD_BYTES, HELD_RECORDS, TriggerMachine
from treadle.triggers.kafka.machine_events import (
    Arrived,
    Assigned,
    Commit,
    CommitFailed,
    EffectDone,
    EffectFailed,
    Judged,
    OutOfRange,
    PartitionsLost,
    Revoked,
    RunEnded,
    RunsCounted,
    Seek,
    Start,
    StartRefused,
    WantRecords,
    WatchRun,
)

MIB = bytes(2**20)
MANY = HELD_BYTES // len(MIB)


def large(offset: int) -> Judged:
    """A matching record of one MiB."""
    record = Record("t", "u", A.number, offset, None, MIB)
    return Judged(record, 1, (Match(record, Event("1", "s", "t"), f"0.{offset}"),))


# -- how much ------------------------------------------------------------------------------------------------------


def test_reading_stops_when_many_bytes_are_held() -> None:
    it = machine(window=1)
    first = it.handle(Arrived(A, tuple(large(offset) for offset in range(MANY))), 0.0)
    assert only(WantRecords, first) == [], "one of them is being started"
    assert only(WantRecords, it.handle(Arrived(A, (large(MANY),)), 0.0)) == [
        WantRecords(A, False),
        WantRecords(B, False),
    ]


def test_batch_above_the_holding_limit_is_gathered_whole() -> None:
    most = 2 * HELD_RECORDS
    records = machine(batches(most, "1MiB"))
    assert records.handle(Arrived(A, tuple(match(A, offset) for offset in range(most - 1))), 0.0) == []
    assert len(only(Start, records.handle(Arrived(A, (match(A, most - 1),)), 0.0))) == 1
    size = machine(batches(HELD_RECORDS, f"{2 * MANY}MiB"))
    assert size.handle(Arrived(A, tuple(large(offset) for offset in range(2 * MANY))), 0.0) == []
    [start] = only(Start, size.handle(Arrived(A, (large(2 * MANY),)), 0.0))
    assert start.batch.size == 2 * HELD_BYTES


def test_all_that_is_there_is_one_trouble_and_one_pause() -> None:
    it = machine()
    starts = only(Start, it.handle(Arrived(A, tuple(match(A, offset) for offset in range(5))), 0.0))
    for start in starts:
        assert only(Start, it.handle(EffectFailed(start.ticket, "down"), 0.0)) == []
    assert only(Start, it.tick(0.49)) == []
    again = only(Start, it.tick(0.5))
    assert len(again) == len(starts)
    it.handle(EffectDone(again[0].ticket), 0.6)
    it.handle(EffectFailed(again[1].ticket, "down"), 0.6)
    assert len(only(Start, it.tick(1.1))) == 1, "a start that works ends it: the next pause is short again"


# -- until when ----------------------------------------------------------------------------------------------------


def test_commits_are_gathered_and_refused_ones_are_repeated() -> None:
    it = machine()
    it.handle(Arrived(A, (passed(A, 0),)), 0.0)
    assert only(Commit, it.tick(10.0)) == [Commit(A, 1)]
    it.handle(Arrived(A, (passed(A, 1),)), 10.0)
    assert only(Commit, it.tick(10.0 + COMMIT_EVERY / 2)) == []
    assert only(Commit, it.tick(10.0 + COMMIT_EVERY)) == [Commit(A, 2)]
    for offset in (CommitFailed(A), CommitFailed(B)):
        it.handle(offset, 11.0)
    assert only(Commit, it.tick(20.0)) == [Commit(A, 2), Commit(B, 0)]


def test_with_one_run_at_a_time_an_offset_is_done_when_its_run_is_over() -> None:
    it = machine(max_active=1)
    [start] = only(Start, it.handle(Arrived(A, (match(A, 0), match(A, 1))), 0.0))
    assert it.handle(EffectDone(start.ticket), 0.0) == [WatchRun("0.0")]
    assert (mark(it, A), it.started, it.active) == (0, 1, 1)
    [start] = only(Start, it.handle(RunEnded("0.0"), 0.0))
    assert (mark(it, A), start.batch.run) == (1, "0.1")


def test_a_run_that_two_records_ask_for_is_watched_once_and_counted_once() -> None:
    it = machine(max_active=3)
    (first,) = match(A, 0).matches
    same = Judged(match(B, 0).record, 1, (Match(match(B, 0).record, first.event, first.run),))
    starts = [
        *only(Start, it.handle(Arrived(A, (match(A, 0),)), 0.0)),
        *only(Start, it.handle(Arrived(B, (same,)), 0.0)),
    ]
    assert [only(WatchRun, it.handle(EffectDone(start.ticket), 0.0)) for start in starts] == [[WatchRun("0.0")], []]
    assert it.active == 1


def test_nothing_starts_before_it_is_known_how_many_runs_the_owner_before_left_open() -> None:
    it = TriggerMachine(lambda _: None, max_active=2)
    it.handle(Assigned(A, 0), 0.0)
    assert it.handle(Arrived(A, (match(A, 0), match(A, 1))), 0.0) == []
    assert it.active == 0
    assert runs(it.handle(RunsCounted(1), 0.0)) == ["0.0"]


def test_the_end_of_any_run_makes_room_before_the_next_count() -> None:
    it = machine(max_active=2)
    it.handle(RunsCounted(2), 0.0)
    assert it.handle(Arrived(A, (match(A, 0), match(A, 1))), 0.0) == []
    assert runs(it.handle(RunEnded("of another process"), 0.0)) == ["0.0"]


# -- records that it no longer owns --------------------------------------------------------------------------------


def test_failed_commit_is_ignored_after_the_partition_is_lost() -> None:
    it = machine()
    it.handle(PartitionsLost((A,)), 0.0)
    assert it.handle(CommitFailed(A), 0.0) == []
    assert it.partitions == (B,)


def test_what_waits_in_a_partition_that_is_revoked_is_held_no_longer() -> None:
    it = machine(window=1)
    it.handle(Arrived(A, tuple(match(A, offset) for offset in range(3))), 0.0)
    assert it.held == 2
    it.handle(Revoked((A,)), 0.0)
    assert (it.held, it.under_way, A in it.partitions) == (0, 1, True)


def test_the_end_of_a_partition_that_is_not_owned_is_nobodys_business() -> None:
    it = machine()
    it.handle(PartitionsLost((A,)), 0.0)
    assert it.handle(OutOfRange(A, 5, 9), 0.0) == it.handle(Revoked((A,)), 0.0) == []


def test_what_fails_to_start_in_a_handover_is_left_to_the_next_owner() -> None:
    it = machine()
    one, two = only(Start, it.handle(Arrived(A, (match(A, 0), match(A, 1))), 0.0))
    it.handle(Revoked((A,)), 0.0)
    it.handle(EffectFailed(one.ticket, "down"), 0.0)
    assert only(Start, it.tick(HANDOVER - 1.0)) == []
    assert A in it.partitions
    assert only(Commit, it.handle(EffectDone(two.ticket), HANDOVER - 0.5)) == [], "the first one is not done"
    assert A not in it.partitions


def test_a_partition_that_comes_back_in_its_handover_is_kept() -> None:
    it = machine()
    [start] = only(Start, it.handle(Arrived(A, (match(A, 0),)), 0.0))
    it.handle(Revoked((A,)), 0.0)
    it.handle(Assigned(A, 0), 1.0)
    it.tick(1.0 + 2 * HANDOVER)
    assert A in it.partitions
    assert runs(it.handle(Arrived(A, (match(A, 0),)), 20.0)) == ["0.0"]
    it.handle(EffectDone(start.ticket), 20.0)
    assert mark(it, A) == 0, "what an earlier time of it began is not known any more"


def test_a_lost_partition_is_forgotten_without_a_commit() -> None:
    it = machine()
    it.handle(Arrived(A, (passed(A, 0), match(A, 1))), 0.0)
    it.handle(Revoked((B,)), 0.0)
    assert only(Commit, it.handle(PartitionsLost((A, B)), 0.0)) == []
    assert (it.partitions, mark(it, A), it.held) == ((), None, 0)
    assert it.handle(Arrived(A, (match(A, 2),)), 0.0) == []
    assert it.tick(10.0) == []


def test_a_partition_that_is_lost_in_its_handover_is_forgotten_too() -> None:
    it = machine()
    it.handle(Arrived(A, (match(A, 0),)), 0.0)
    it.handle(Revoked((A,)), 0.0)
    it.handle(PartitionsLost((A,)), 0.0)
    assert it.tick(2 * HANDOVER) == []
    assert it.partitions == (B,)


@pytest.mark.parametrize("end", [2, 9])
def test_an_end_is_adopted_only_for_a_batch_of_a_partition_that_is_still_the_same(end: int) -> None:
    it = machine(batches(4))
    [start] = only(Start, it.handle(Arrived(A, tuple(match(A, n) for n in range(4))), 0.0))
    it.handle(PartitionsLost((A,)), 0.0)
    it.handle(Assigned(A, 0), 0.0)
    assert only(Seek, it.handle(EffectDone(start.ticket, {"end": end}), 0.0)) == []
    assert mark(it, A) == 0
    single = machine()
    [start] = only(Start, single.handle(Arrived(A, (match(A, 0),)), 0.0))
    assert only(Seek, single.handle(EffectDone(start.ticket, {"end": end}), 0.0)) == []
    assert mark(single, A) == 1


def test_records_behind_a_batch_stay_when_the_batch_has_its_own_end() -> None:
    it = machine(batches(2))
    [start] = only(Start, it.handle(Arrived(A, tuple(match(A, n) for n in range(4))), 0.0))
    done = it.handle(EffectDone(start.ticket, {"end": 2}), 0.0)
    assert (only(Seek, done), runs(done)) == ([], ["0.2"])
    [start] = only(Start, done)
    it.handle(Revoked((A,)), 0.0)
    assert only(Seek, it.handle(EffectDone(start.ticket, {"end": 3}), 0.0)) == [], "another process goes on from there"


def test_answer_about_an_unexpected_letter_changes_nothing() -> None:
    it = machine()
    for answer in (EffectDone(7), EffectFailed(7, "full"), StartRefused(7, "no")):
        assert it.handle(answer, 0.0) == []
    assert (it.dead, it.trouble, it.under_way) == (0, "", 0)
