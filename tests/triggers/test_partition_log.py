"""One partition's log: the held records, the records that may be started, and the offset below which all are done."""

from __future__ import annotations

import msgspec
from triggers.test_machine import A, batches, dead, match, passed
from triggers.test_machine_holds import large

from treadle.triggers.kafka.batch import KafkaBatch
from treadle.triggers.kafka.partition_progress import PartitionLog

THREE = batches(3)


def log(position: int = 0) -> PartitionLog:
    return PartitionLog(A, position)


def held(it: PartitionLog) -> tuple[int, int]:
    """(records, bytes)."""
    return it.held, it.held_bytes


def test_held_records_are_neither_started_nor_written() -> None:
    it = log()
    it.take(match(A, 0), THREE, 0.0)
    it.take(match(A, 1), THREE, 0.0)
    assert held(it) == (2, 2)
    assert it.take(dead(A, 2), THREE, 0.0)
    assert held(it) == (3, 2)
    it.take(match(A, 3), THREE, 0.0)
    assert held(it) == (4, 3)
    it.done(2, letter=2)
    assert held(it) == (3, 3)
    batch = it.start(1)
    assert held(it) == (0, 0)
    it.put_back(batch)
    assert held(it) == (3, 3)
    it.take(match(A, 4), THREE, 0.0)
    assert held(it) == (4, 4)
    it.drop_ready()
    assert held(it) == (1, 1)
    it.cut()
    assert held(it) == (1, 1)


def test_batches_of_a_chain_start_in_order_after_the_letters_below_their_end() -> None:
    it = log()
    for judged in (match(A, 0), dead(A, 1), match(A, 2), match(A, 3), *(match(A, n) for n in range(4, 7)), dead(A, 7)):
        it.take(judged, THREE, 0.0)
    assert not it.startable()
    it.done(1, letter=1)
    assert it.startable(), "the letter at 7 is beyond its end"
    first = it.start(1)
    assert (first.end, it.starting, it.startable()) == (4, 1, False)
    it.put_back(first)
    assert (it.starting, it.startable()) == (0, True)
    assert it.start(2) == first
    it.started()
    assert it.startable(), "its run is there, though not over"
    assert (it.start(3).run, it.mark, it.last_start) == ("0.4", 0, 3)
    it.done(0)
    it.done(4)
    assert it.mark == 7


def test_a_record_larger_than_a_batch_may_be_is_one_of_its_own() -> None:
    it, small = log(), batches(100, "1KiB")
    for judged in (large(0), match(A, 1), large(2), match(A, 3)):
        it.take(judged, small, 0.0)
    it.cut()
    found = [it.start(number) for number in range(4)]
    assert [(batch.run, batch.end) for batch in found] == [("0.0", 1), ("0.1", 2), ("0.2", 3), ("0.3", 4)]


def test_single_records_start_beside_each_other_and_end_with_themselves() -> None:
    it = log()
    for offset in (3, 5):
        it.take(match(A, offset), None, 0.0)
    it.take(dead(A, 6), None, 0.0)
    found: list[KafkaBatch] = []
    while it.startable():
        found.append(it.start(len(found) + 1))
    assert [(batch.run, batch.end) for batch in found] == [("0.3", 4), ("0.5", 6)]
    assert it.starting == 2
    it.started()
    it.put_back(found[1])
    assert (it.starting, it.startable()) == (0, True)


def test_end_of_another_batch_keeps_earlier_records_until_its_run_is_over() -> None:
    it = log()
    it.take(dead(A, 0), THREE, 0.0)
    for offset in range(1, 9):
        it.take(match(A, offset), THREE, 0.0)
    it.take(dead(A, 9), THREE, 0.0)
    it.done(0, letter=0)
    batch = it.start(1)
    it.started()
    it.adopt(batch, 6)
    assert (it.mark, it.position, held(it), it.startable()) == (1, 6, (0, 0), False)
    assert not it.take(match(A, 5), THREE, 0.0), "it is covered"
    it.take(match(A, 6), THREE, 0.0)
    assert held(it) == (1, 1)
    it.done(1)
    assert it.mark == 6
    it.take(match(A, 7), None, 0.0)
    it.take(match(A, 8), None, 0.0)
    assert it.start(2).run == "0.6"
    it.started()
    assert it.start(3).run == "0.7"
    assert it.startable(), "what began a batch before begins none now"


def test_record_with_runs_and_a_letter_is_done_when_all_of_them_are() -> None:
    it = log()
    both = msgspec.structs.replace(match(A, 0, count=2), reason="a third object is poison")
    assert it.take(both, None, 0.0)
    assert [it.start(number).run for number in (1, 2)] == ["0.0", "0.0.1"]
    for letter in (None, 0, None):
        assert it.mark == 0
        it.done(0, letter=letter)
    assert (it.mark, held(it)) == (1, (0, 0))


def test_halves_of_a_batch_cover_its_records_and_follow_each_other() -> None:
    it = log()
    it.take(match(A, 0), THREE, 0.0)
    it.take(passed(A, 1), THREE, 0.0)
    for offset in (2, 3, 5):
        it.take(match(A, offset), THREE, 0.0)
    it.halve(it.start(1))
    assert (it.starting, it.mark, held(it)) == (0, 0, (4, 4))
    half = it.start(2)
    assert ([one.run for one in half.matched], half.end, it.startable()) == (["0.0"], 2, False)
    it.started()
    it.done(0)
    assert it.mark == 2
    rest = it.start(3)
    assert ([one.run for one in rest.matched], rest.end) == (["0.2", "0.3"], 4)
    it.started()
    it.done(2)
    assert it.mark == 5


def test_refused_record_holds_the_mark_until_its_letter_is_written() -> None:
    it = log()
    it.take(match(A, 0), batches(1), 0.0)
    it.take(match(A, 1), batches(1), 0.0)
    it.bury(it.start(1))
    assert (it.starting, it.mark, held(it), it.startable()) == (0, 0, (2, 1), False)
    it.done(0, letter=0)
    assert (it.mark, held(it), it.startable()) == (1, (1, 1), True)
